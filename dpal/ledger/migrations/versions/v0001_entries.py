"""The table of entries, which can only grow."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes the table, and what refuses to change or drop a row."""
    op.create_table(
        "entries",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("campaign", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("release", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("recorded_at", sa.Text, nullable=False),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False, unique=True),
        # The last guard against a release that is reserved or committed twice.
        sa.UniqueConstraint("campaign", "kind", "release"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            """CREATE FUNCTION entries_refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$"""
        )
        op.execute(
            """CREATE TRIGGER entries_refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE
            ON entries FOR EACH STATEMENT EXECUTE FUNCTION entries_refuse()"""
        )
        return
    for action in ("UPDATE", "DELETE"):
        op.execute(
            f"""CREATE TRIGGER entries_refuse_{action.lower()} BEFORE {action} ON entries
            BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"""
        )
