"""How a ledger's tables came to be, version by version; run by Alembic when one is opened."""
