"""Books of results: a grid of runs on public records, set beside printed numbers."""
