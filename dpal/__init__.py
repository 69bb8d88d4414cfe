"""Differentially private active learning whose promise is checked, kept and recorded."""

__version__ = "0.1.0"
