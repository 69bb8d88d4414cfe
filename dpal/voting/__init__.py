"""Teachers vote, noise is added, and what is released is labels."""
