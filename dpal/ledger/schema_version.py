"""Which version a ledger's tables have, and how an older one is brought up to date."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from dpal.errors import LedgerError, LedgerTampered

# Oldest first. Ledgers that were made before versions were noted are of the first.
VERSIONS = ("0001", "0002", "0003")

ENTRIES = sa.table(
    "entries",
    sa.column("sequence", sa.Integer),
    *(
        sa.column(name, sa.Text)
        for name in ("campaign", "kind", "release", "body", "recorded_at", "previous", "digest")
    ),
)

# What follows from the entries, for finding those that a decision needs; see topics.py.
TOPICS = sa.table(
    "entry_topics",
    sa.column("topic", sa.Text),
    sa.column("number", sa.Integer),
    sa.column("sequence", sa.Integer),
    *(sa.column(name, sa.Text) for name in ("entry", "totals", "previous", "digest")),
)
TOPIC_TREE = sa.table(
    "entry_topic_tree",
    sa.column("parent", sa.Text),
    sa.column("node", sa.Text),
    sa.column("digest", sa.Text),
)


def version_of(connection: sa.Connection, name: str) -> str | None:
    """Returns the schema version of an open database, None where it holds no ledger yet.

    Args:
      connection: to the database.
      name: what to call the ledger in a refusal.

    Raises:
      LedgerError: a newer `dpal` made this ledger.
      LedgerTampered: its version is missing.
    """
    tables = sa.inspect(connection)
    if not tables.has_table("entries"):
        return None
    if not tables.has_table("alembic_version"):
        return VERSIONS[0]
    version: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    if version is None:
        raise LedgerTampered(None, f"{name} has lost the version of its schema")
    if version not in VERSIONS:
        raise LedgerError(
            f"the ledger {name} has schema {version}, and this dpal knows schemas up to "
            f"{VERSIONS[-1]}; nothing was read or changed, install the dpal that made it"
        )
    return version


def migrate_schema(connection: sa.Connection, version: str | None) -> None:
    """Brings the tables to the newest version, in the caller's transaction; entries stay.

    Args:
      connection: in a transaction that holds the write lock.
      version: from `version_of` in the same transaction.
    """
    if version == VERSIONS[-1]:
        return
    # Alembic takes longer to import than a ledger to open, and is wanted once in its life.
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).with_name("migrations")).replace("%", "%%")
    config.set_main_option("script_location", folder)
    config.attributes["connection"] = connection
    if version is not None:
        command.stamp(config, version)
    command.upgrade(config, "head")
