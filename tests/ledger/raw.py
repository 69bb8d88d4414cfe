"""A ledger's database as somebody sees it who goes around `dpal`."""

from __future__ import annotations

import json
from pathlib import Path

import sqlalchemy as sa

from dpal.canonical import canonical_json
from dpal.ledger.entries import EntryKind, seal_entry
from dpal.ledger.ledger_store import LedgerStore


def fill(store: LedgerStore, *releases: str, campaign: str = "c") -> None:
    """Reserves each of some releases."""
    for release in releases:
        body = {"noise": 1.5, "names": ["é", "b"]}
        store.append(campaign=campaign, kind=EntryKind.RESERVE, release=release, body=body)


def run(place: Path | str, *statements: str, guarded: bool = False, **values: object) -> list:
    """Runs statements, by default with the ledger's triggers out of the way; rows of the last."""
    server = isinstance(place, str)
    url = sa.make_url(place if isinstance(place, str) else f"sqlite:///{place}")
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg") if server else url)
    try:
        with engine.begin() as connection:
            if not guarded and server:
                connection.execute(sa.text("SET session_replication_role = replica"))
            elif not guarded:
                for trigger in ("refuse_update", "refuse_delete", "only_next"):
                    connection.execute(sa.text(f"DROP TRIGGER IF EXISTS entries_{trigger}"))
            for statement in statements:
                result = connection.execute(sa.text(statement), values)
            return list(result) if result.returns_rows else []
    finally:
        engine.dispose()


def rows(place: Path | str) -> list:
    """All entries as they are stored."""
    return run(place, "SELECT * FROM entries ORDER BY sequence", guarded=True)


def put_back(place: Path | str, earlier: list) -> None:
    """Replaces all entries by those of an earlier look: a restored backup."""
    run(place, "DELETE FROM entries")
    for row in earlier:
        names = ", ".join(row._mapping)
        marks = ", ".join(f":{name}" for name in row._mapping)
        run(place, f"INSERT INTO entries ({names}) VALUES ({marks})", **row._mapping)


def reseal(place: Path | str, sequence: int, *, chain: bool = False, **changes: object) -> None:
    """Alters an entry as somebody who can compute digests; those of all later ones, too."""
    previous = None
    for row in rows(place):
        told = {**row._mapping, "body": json.loads(row.body), "kind": EntryKind(row.kind)}
        del told["digest"]
        if row.sequence == sequence:
            told |= changes
        elif row.sequence < sequence or not chain:
            continue
        told["previous"] = previous or told["previous"]
        entry = seal_entry(**told)
        previous = entry.digest if chain else None
        assignments = ", ".join(f"{name} = :{name}" for name in told if name != "sequence")
        values = {**vars(entry), "kind": entry.kind.value, "body": canonical_json(entry.body)}
        run(
            place,
            f"UPDATE entries SET {assignments}, digest = :digest WHERE sequence = :sequence",
            **values,
        )
