"""Fixed, public functions of a record that make its features: they cost no budget."""
