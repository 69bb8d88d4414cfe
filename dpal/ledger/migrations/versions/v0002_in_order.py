"""Entries are added at the end only.

SQLite's INSERT OR REPLACE drops a row without asking the triggers of version 1.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Makes what refuses an entry whose number is not the next one."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            """CREATE FUNCTION entries_in_order() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN
              IF NEW.sequence <> (SELECT coalesce(max(sequence), 0) + 1 FROM entries) THEN
                RAISE EXCEPTION 'the ledger grows at its end only';
              END IF;
              RETURN NEW;
            END $$"""
        )
        op.execute(
            """CREATE TRIGGER entries_only_next BEFORE INSERT ON entries
            FOR EACH ROW EXECUTE FUNCTION entries_in_order()"""
        )
        return
    op.execute(
        """CREATE TRIGGER entries_only_next BEFORE INSERT ON entries
        WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM entries)
        BEGIN SELECT RAISE(ABORT, 'the ledger grows at its end only'); END"""
    )
