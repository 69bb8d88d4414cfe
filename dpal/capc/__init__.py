"""Sites that do not trust each other vote on a query, and nobody but who asked learns anything."""
