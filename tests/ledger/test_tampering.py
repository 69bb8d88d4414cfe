"""Whatever is changed in a ledger is found, named, and stops the spending."""

from __future__ import annotations

import random
import sqlite3

import pytest

from dpal.errors import LedgerTampered
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import having
from tests.ledger import raw
from tests.ledger.raw import fill
from tests.ledger.releasing import Drawing, hold, release, run_all, settle

COLUMNS = ["campaign", "kind", "release", "body", "recorded_at", "previous", "digest"]


def first_bad(store: LedgerStore) -> int | None:
    with pytest.raises(LedgerTampered) as found:
        store.verified()
    return found.value.sequence


@pytest.mark.parametrize("column", COLUMNS)
def test_any_changed_column_is_found_and_named(opened, place, column):
    store = opened()
    fill(store, "a", "b", "c")
    [[old]] = raw.run(place, f"SELECT {column} FROM entries WHERE sequence = 3", guarded=True)
    # One character; for `kind` another kind, as any other word cannot even be read.
    new = "forfeit" if column == "kind" else ("x" if old[0] != "x" else "y") + old[1:]
    raw.run(place, f"UPDATE entries SET {column} = :new WHERE sequence = 3", new=new)
    assert first_bad(store) == 3
    with pytest.raises(LedgerTampered):
        fill(store, "d")
    assert len(raw.rows(place)) == 4


def test_any_byte_of_any_entry_is_found_and_named(tmp_path):
    """All positions of all columns, each with another byte; also bytes that are no text."""
    path, choose = tmp_path / "ledger.sqlite", random.Random(20260101)
    store = LedgerStore(path)
    store.append(campaign="camp", kind=EntryKind.HOLD, release="", body={"é": [1.5, None, "\\ x"]})
    fill(store, "a")
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("PRAGMA synchronous=OFF")
    file.execute("DROP TRIGGER entries_refuse_update")
    changed = 0
    for sequence in (1, 2, 3):
        for column in COLUMNS:
            where = f"entries SET {column} = CAST(? AS TEXT) WHERE sequence = {sequence}"
            cell = f"SELECT CAST({column} AS BLOB) FROM entries WHERE sequence = {sequence}"
            old = file.execute(cell).fetchone()[0]
            for position in range(len(old)):
                other = choose.choice([byte for byte in range(256) if byte != old[position]])
                new = old[:position] + bytes([other]) + old[position + 1 :]
                file.execute(f"UPDATE {where}", (new,))
                assert first_bad(store) == sequence, (column, position, new)
                changed += 1
            # A byte more and a byte less, too: JSON would not mind a space.
            for new in (old + b" ", old[:-1] or b" "):
                file.execute(f"UPDATE {where}", (new,))
                assert first_bad(store) == sequence, (column, new)
            file.execute(f"UPDATE {where}", (old,))
    file.close()
    assert changed > 500
    assert len(store.verified()) == 3


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("DELETE FROM entries WHERE sequence = 1", 1),
        ("DELETE FROM entries WHERE sequence = 3", 3),
        ("DELETE FROM entries WHERE sequence IN (2, 4)", 2),
        ("UPDATE entries SET sequence = 99 WHERE sequence = 2", 2),
        ("UPDATE entries SET sequence = sequence + 10", 1),
    ],
)
@pytest.mark.parametrize("anchors", ["anchors", None])
def test_missing_and_moved_entries_are_named(opened, place, statement, named, anchors):
    store = opened(anchors=anchors)
    fill(store, "a", "b", "c")
    raw.run(place, statement)
    assert first_bad(store) == named
    with pytest.raises(LedgerTampered):
        fill(store, "d")


@pytest.mark.parametrize(("one", "other"), [(1, 2), (2, 4), (3, 4)])
def test_reordered_entries_are_named(opened, place, one, other):
    store = opened()
    fill(store, "a", "b", "c")
    raw.run(
        place,
        f"UPDATE entries SET sequence = 99 WHERE sequence = {one}",
        f"UPDATE entries SET sequence = {one} WHERE sequence = {other}",
        f"UPDATE entries SET sequence = {other} WHERE sequence = 99",
    )
    assert first_bad(store) == one


def test_an_entry_that_was_put_in_is_named(opened, place):
    """Somebody who can compute digests, but not those of all later entries' anchors."""
    store = opened()
    fill(store, "a", "b")
    raw.run(
        place,
        "UPDATE entries SET sequence = 4 WHERE sequence = 3",
        "INSERT INTO entries VALUES (3, 'c', 'hold', '', '{}', '', '', 'x')",
    )
    assert first_bad(store) == 3


def test_a_sound_chain_gives_its_head(ledger):
    assert verify_chain([]) == "0" * 64
    run_all(ledger)
    entries = ledger.store.entries()
    assert verify_chain(entries) == entries[-1].digest


def test_a_file_that_is_no_database_is_said(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"this is not a database, " * 100)
    with pytest.raises(LedgerTampered, match="sound database"):
        LedgerStore(path)


def test_a_damaged_file_is_said(ledger, tmp_path):
    run_all(ledger)
    ledger.store.require_sound_file()
    ledger.store.close()
    path = tmp_path / "ledger.sqlite"
    content = bytearray(path.read_bytes())
    content[4096 + 3 : 4096 + 40] = bytes(37)  # the second page's header and cell pointers
    path.write_bytes(content)
    with pytest.raises(LedgerTampered, match=r"damaged|sound database"):
        LedgerStore(path).require_sound_file()


def test_nothing_is_spent_on_an_altered_ledger(ledger, tmp_path):
    hold(ledger)
    raw.run(
        tmp_path / "ledger.sqlite",
        "UPDATE entries SET body = replace(body, :old, :new)",
        old='"epsilon":8.0',
        new='"epsilon":99.0',
    )
    drawing = Drawing(ledger.folder / "model")
    with pytest.raises(LedgerTampered, check=having(sequence=2)):
        settle(ledger, release("phase-0/training"), [drawing.path], drawing)
    assert drawing.times == 0
