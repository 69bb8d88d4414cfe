"""MLflow: the only modules that import it."""
