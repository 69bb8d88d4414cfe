"""Prefect tasks: load, call `dpal`, save, return something small."""
