"""The order of things."""
