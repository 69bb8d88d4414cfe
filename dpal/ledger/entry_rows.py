"""Entries as rows of a database: read one by one, each checked against its own digest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from dpal.canonical import canonical_json
from dpal.errors import LedgerTampered
from dpal.ledger.chain import missing_entry
from dpal.ledger.entries import Entry, EntryKind, row_digest
from dpal.ledger.schema_version import ENTRIES

_COLUMNS = tuple(column.name for column in ENTRIES.c)
_AT_ONCE = 1000  # rows; a ledger of any length is verified in the memory of so many
_FOLLOWING = (
    sa.select(ENTRIES)
    .where(ENTRIES.c.sequence > sa.bindparam("after"))
    .order_by(ENTRIES.c.sequence)
    .limit(_AT_ONCE)
)
_ONE = sa.select(ENTRIES).where(ENTRIES.c.sequence == sa.bindparam("number"))


def read_entries(
    connection: sa.Connection, campaign: str | None = None, *kinds: EntryKind
) -> list[Entry]:
    """Reads all entries, or those of one campaign, or of these kinds among them, in order.

    Raises:
      LedgerTampered: an entry is altered; or, where all are read, missing.
    """
    query = sa.select(ENTRIES).order_by(ENTRIES.c.sequence)
    if campaign is not None:
        query = query.where(ENTRIES.c.campaign == campaign)
    if kinds:
        query = query.where(ENTRIES.c.kind.in_([kind.value for kind in kinds]))
    # All rows first: a refusal in the middle would leave SQLite reading this old state.
    rows = connection.execute(query).all()
    for expected, row in enumerate(rows, start=1):
        if campaign is None and not kinds and row.sequence != expected:
            raise missing_entry(expected, row.sequence)
    return [entry_of(row) for row in rows]


def entry_at(connection: sa.Connection, sequence: int) -> Entry | None:
    """Reads the entry of a number; None where there is none.

    Raises:
      LedgerTampered: it is altered.
    """
    row = connection.execute(_ONE, {"number": sequence}).one_or_none()
    return None if row is None else entry_of(row)


def entries_after(connection: sa.Connection, sequence: int, previous: str) -> Iterator[Entry]:
    """Reads the entries that follow one, a thousand at a time.

    Args:
      connection: to the database.
      sequence: number of that one, 0 to begin with the first.
      previous: its digest.

    Raises:
      LedgerTampered: names the first that is altered or does not follow from the one before it.
    """
    while True:
        rows = connection.execute(_FOLLOWING, {"after": sequence}).all()
        for row in rows:
            if row.sequence != sequence + 1:
                raise missing_entry(sequence + 1, row.sequence)
            entry = entry_of(row)
            if entry.previous != previous:
                raise LedgerTampered(entry.sequence, LedgerTampered.ANOTHER_BEFORE)
            yield entry
            sequence, previous = entry.sequence, entry.digest
        if len(rows) < _AT_ONCE:
            return


def write_entry(connection: sa.Connection, entry: Entry) -> None:
    """Adds an entry to the table."""
    row = {**vars(entry), "kind": entry.kind.value, "body": canonical_json(entry.body)}
    connection.execute(ENTRIES.insert().values(row))


def entry_of(row: Any, *, proven: bool = False) -> Entry:
    """Reads a row, whatever types its cells were given by a damage or a repair.

    Args:
      row: begins with the columns of an entry; more may follow.
      proven: whether its digest is known to be that of an entry that was written.

    Raises:
      LedgerTampered: it is altered.
    """
    cells = dict(zip(_COLUMNS, row, strict=False))
    sequence, *texts = cells.values()
    try:
        if not isinstance(sequence, int) or not all(isinstance(text, str) for text in texts):
            raise TypeError("a cell is of another type")
        body = json.loads(cells["body"])
        # One content, one text: a digest over the meaning alone would let a space pass.
        if not isinstance(body, dict) or not (proven or canonical_json(body) == cells["body"]):
            raise ValueError("not canonical")
        entry = Entry(**{**cells, "kind": EntryKind(cells["kind"]), "body": body})
    except (ValueError, TypeError, RecursionError) as error:
        raise LedgerTampered(sequence, "its content cannot be read") from error
    if row_digest(cells) != entry.digest:
        raise LedgerTampered(sequence, LedgerTampered.ANOTHER_CONTENT)
    return entry
