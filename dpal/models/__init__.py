"""Architectures that treat every record on its own, the list of them, and what builds them."""
