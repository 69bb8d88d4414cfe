"""Other people's files as pools: tables, pictures, arrays and texts become one Parquet file."""
