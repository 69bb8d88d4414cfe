"""A folder in which new data files arrive."""
