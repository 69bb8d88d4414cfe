"""Pools: Parquet files of records, read in streams."""
