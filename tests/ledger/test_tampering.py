"""Whatever is changed in a ledger is found, named, and stops the spending."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dpal.errors import LedgerTampered
from dpal.ledger.chain import verify_chain
from dpal.ledger.store import LedgerStore
from tests.ledger.releasing import Drawing, hold, release, run_all, settle

COLUMNS = ["campaign", "kind", "release", "body", "recorded_at", "previous", "digest"]


def tamper(path: Path, statement: str, *values: object) -> None:
    raw = sqlite3.connect(path)
    for trigger in ("entries_refuse_update", "entries_refuse_delete"):
        raw.execute(f"DROP TRIGGER {trigger}")
    raw.execute(statement, values)
    raw.commit()
    raw.close()


@pytest.mark.parametrize("column", COLUMNS)
def test_any_changed_column_is_found_and_named(ledger, tmp_path, column):
    run_all(ledger)
    path = tmp_path / "ledger.sqlite"
    raw = sqlite3.connect(path)
    old = raw.execute(f"SELECT {column} FROM entries WHERE sequence = 4").fetchone()[0]
    # One character; for `kind` another kind, as any other word cannot even be read.
    new = "forfeit" if column == "kind" else ("x" if old[0] != "x" else "y") + old[1:]
    tamper(path, f"UPDATE entries SET {column} = ? WHERE sequence = 4", new)
    with pytest.raises(LedgerTampered) as found:
        verify_chain(ledger.store.entries())
    assert found.value.sequence == 4


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("DELETE FROM entries WHERE sequence = 3", 3),
        ("DELETE FROM entries WHERE sequence = 1", 1),
        ("UPDATE entries SET sequence = 99 WHERE sequence = 2", 2),
    ],
)
def test_missing_and_moved_entries_are_named(ledger, tmp_path, statement, named):
    run_all(ledger)
    tamper(tmp_path / "ledger.sqlite", statement)
    with pytest.raises(LedgerTampered) as found:
        verify_chain(ledger.store.entries())
    assert found.value.sequence == named


def test_a_sound_chain_gives_its_head(ledger):
    assert verify_chain([]) == "0" * 64
    run_all(ledger)
    entries = ledger.store.entries()
    assert verify_chain(entries) == entries[-1].digest


def test_a_file_that_is_no_database_is_said(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"this is not a database, " * 100)
    with pytest.raises(LedgerTampered, match="no sound database"):
        LedgerStore(path)


def test_nothing_is_spent_on_an_altered_ledger(ledger, tmp_path):
    hold(ledger)
    tamper(
        tmp_path / "ledger.sqlite",
        "UPDATE entries SET body = replace(body, '\"epsilon\":8.0', '\"epsilon\":99.0')",
    )
    drawing = Drawing(ledger.folder / "model")
    with pytest.raises(LedgerTampered, match="entry 1 was altered"):
        settle(ledger, release("phase-0/training"), [drawing.path], drawing)
    assert drawing.times == 0
