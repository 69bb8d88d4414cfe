"""From wishes to one frozen, verified plan, before any record is touched."""
