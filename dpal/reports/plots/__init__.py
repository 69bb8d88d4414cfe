"""Figures: one function each, which says what is drawn; how figures look stands in `style`."""
