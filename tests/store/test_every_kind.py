"""The store carries runs of every kind: what is lost comes back, and nothing is drawn again."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from dpal.ledger.entries import Kind
from dpal.ledger.store import LedgerStore
from dpal.runs.execute import run
from dpal.runs.kinds import parse_any
from tests.flows.voting import ballots, settings, write_ballots, write_data


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Where a machine keeps what is not lost with the folder of a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far").mkdir()
    return {
        "anchors": str(tmp_path / "far" / "anchors"),
        "store": (tmp_path / "far" / "store").as_uri(),
        "store_holds": "everything",
    }


def entries(name):
    with closing(LedgerStore(Path("artifacts/ledger.sqlite"), create=False)) as store:
        return [entry for entry in store.entries() if entry.campaign == name]


def lost_and_run_again(values):
    """Runs, loses the folder, runs again; nothing is drawn a second time."""
    config = parse_any(values)
    folder = run(config)
    before = entries(folder.name)
    certificate = folder.certificate.read_bytes()
    shutil.rmtree(folder.root)
    again = run(config)
    after = entries(folder.name)
    drawn = [entry.release for entry in after if entry.kind is Kind.RESERVE]
    assert drawn == [entry.release for entry in before if entry.kind is Kind.RESERVE]
    assert drawn
    assert again.certificate.read_bytes() == certificate
    return again


def test_released_votes_come_back(shared):
    file = write_ballots("ballots.parquet", ballots(1))
    values = {"kind": "vote", "name": "votes", "ballots": {"files": [file]},
              "privacy": {"records": 4000, "epsilon": 8}, "runtime": shared}  # fmt: skip
    folder = lost_and_run_again(values)
    assert (folder.root / "votes-1" / "released.parquet").is_file()


def test_teachers_and_their_student_come_back(shared):
    write_data(Path())
    folder = lost_and_run_again(settings("teachers", runtime=shared))
    assert folder.phase(0).model.is_file()
