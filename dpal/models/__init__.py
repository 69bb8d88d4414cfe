"""Architectures that treat every record on its own, and the registry that builds them."""
