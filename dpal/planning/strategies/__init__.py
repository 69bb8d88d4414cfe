"""Ways to spread a campaign's budget over its phases: one file a strategy."""
