"""Differentially private training, one phase at a time."""
