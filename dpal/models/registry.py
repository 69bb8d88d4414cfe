"""Kept for registered models, whose source imports it; everybody else uses `build_model.py`."""

from dpal.models.build_model import build_model as build_model
