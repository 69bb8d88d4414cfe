"""Kept for registered models, whose source imports it; everybody else uses `sources.py`."""

from dpal.data.sources import Content as Content
