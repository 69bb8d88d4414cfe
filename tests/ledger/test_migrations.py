"""Ledgers of other versions: older ones are brought up to date, newer ones left alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

import dpal.ledger
from dpal.canonical import canonical_json
from dpal.errors import AnchorError, LedgerError
from dpal.ledger.entries import GENESIS, EntryKind, seal_entry
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.schema_version import VERSIONS
from tests.conftest import having
from tests.ledger import raw
from tests.ledger.raw import fill

MADE_BEFORE = [
    """CREATE TABLE entries (sequence INTEGER NOT NULL, campaign TEXT NOT NULL,
    kind TEXT NOT NULL, release TEXT NOT NULL, body TEXT NOT NULL, recorded_at TEXT NOT NULL,
    previous TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (sequence),
    UNIQUE (campaign, kind, release), UNIQUE (digest))""",
    """CREATE TRIGGER entries_refuse_update BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    """CREATE TRIGGER entries_refuse_delete BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
]
KINDS = [EntryKind.HOLD, EntryKind.RESERVE, EntryKind.COMMIT]


@pytest.fixture
def old(tmp_path) -> Path:
    """A ledger with three entries, as it was made before versions were noted."""
    path = tmp_path / "old.sqlite"
    file = sqlite3.connect(path)
    for statement in MADE_BEFORE:
        file.execute(statement)
    head = GENESIS
    for sequence, kind in enumerate(KINDS, start=1):
        entry = seal_entry(
            sequence=sequence, campaign="c", kind=kind, release="", body={"epsilon": 8.0},
            recorded_at="2026-01-01T00:00:00.000+00:00", previous=head,
        )  # fmt: skip
        row = {**vars(entry), "kind": kind.value, "body": canonical_json(entry.body)}
        file.execute(f"INSERT INTO entries VALUES ({', '.join('?' * 8)})", list(row.values()))
        head = entry.digest
    file.commit()
    file.close()
    return path


def version(place: Path | str) -> str:
    return raw.run(place, "SELECT version_num FROM alembic_version", guarded=True)[0][0]


def test_the_known_versions_are_those_that_there_are_scripts_for():
    config = Config()
    folder = Path(dpal.ledger.__file__).with_name("migrations")
    config.set_main_option("script_location", str(folder))
    scripts = ScriptDirectory.from_config(config).walk_revisions()
    assert tuple(script.revision for script in scripts) == VERSIONS[::-1]


def test_a_new_ledger_has_the_newest_version(opened, place):
    opened()
    assert version(place) == VERSIONS[-1]


def test_an_older_ledger_keeps_its_entries_and_grows(old):
    before = raw.rows(old)
    store = LedgerStore(old)
    assert version(old) == VERSIONS[-1]
    assert raw.rows(old) == before
    fill(store, "new")
    kinds = [entry.kind for entry in store.verified()]
    assert kinds == [*KINDS, EntryKind.RESERVE]
    with pytest.raises(Exception, match="grows at its end"):
        raw.run(old, "INSERT OR REPLACE INTO entries SELECT * FROM entries", guarded=True)


def test_an_upgraded_ledger_is_as_strict_as_a_new_one(old, tmp_path):
    """The same table and the same triggers, whichever way they came to be."""

    def structure(path: Path) -> set:
        with sqlite3.connect(path) as file:
            parts = file.execute("SELECT type, name, tbl_name FROM sqlite_master").fetchall()
            columns = file.execute("PRAGMA table_info(entries)").fetchall()
        return {*parts, *columns}

    LedgerStore(old)
    LedgerStore(tmp_path / "new.sqlite")
    assert structure(old) == structure(tmp_path / "new.sqlite")


def test_looking_changes_nothing(old):
    content = old.read_bytes()
    store = LedgerStore(old, create=False)
    assert len(store.verified()) == 3
    store.close()
    assert old.read_bytes()[100:] == content[100:]  # the header notes that it was opened
    fill(LedgerStore(old, create=False), "new")  # and appending brings it up to date
    assert version(old) == VERSIONS[-1]


def test_an_older_ledger_is_anchored_by_a_person(old, tmp_path):
    """No anchor ever said which copy of it is the newest."""
    store = LedgerStore(old, anchors=tmp_path / "anchors")
    with pytest.raises(AnchorError, check=having(finding="missing")):
        fill(store, "new")
    store.adopt(reason="made before ledgers were anchored")
    earlier = raw.rows(old)
    fill(store, "new")
    assert len(store.verified()) == 5
    raw.put_back(old, earlier[:3])
    with pytest.raises(AnchorError, check=having(finding="behind", sequence=5)):
        fill(store, "again")


def test_an_upgrade_that_is_cut_short_leaves_the_old_ledger(old, monkeypatch):
    before, upgrade = raw.rows(old), command.upgrade

    def die(config, revision):
        upgrade(config, revision)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "upgrade", die)
    with pytest.raises(KeyboardInterrupt):
        LedgerStore(old)
    with sqlite3.connect(old) as file:
        names = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
    assert "alembic_version" not in names
    assert "entries_only_next" not in names
    monkeypatch.undo()
    fill(LedgerStore(old), "new")
    assert raw.rows(old)[:3] == before


def test_a_newer_ledger_is_refused_and_left_alone(opened, place):
    fill(opened(), "a")
    raw.run(place, "UPDATE alembic_version SET version_num = '0099'", guarded=True)
    before = raw.rows(place)
    for create in (True, False):
        with pytest.raises(LedgerError, match="schema 0099"):
            opened(create=create)
    assert raw.rows(place) == before
    assert version(place) == "0099"
