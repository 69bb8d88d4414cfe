"""What releases cost: events, curves, conversions."""
