"""Files: atomic writes, layout of a run's folder, object storage."""
