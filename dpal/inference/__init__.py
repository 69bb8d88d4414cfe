"""Predictions of a released model: what `dpal predict` and served models share."""
