"""The store carries runs of every kind: what is lost comes back, and nothing is drawn again."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpal.config.runtime import RuntimeConfig
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.runs.execute import execute_run
from dpal.runs.kinds import kind_of, parse_any
from dpal.runs.vote_release import release_ballots, release_summary
from dpal.runs.vote_request import VoteRequest
from flows.cli.plan_view import RunPlanViews
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
    folder = execute_run(config)
    before = entries(folder.name)
    certificate = folder.certificate.read_bytes()
    shutil.rmtree(folder.root)
    again = execute_run(config)
    after = entries(folder.name)
    drawn = [entry.release for entry in after if entry.kind is EntryKind.RESERVE]
    assert drawn == [entry.release for entry in before if entry.kind is EntryKind.RESERVE]
    assert drawn
    assert again.certificate.read_bytes() == certificate
    return again


def test_released_votes_come_back(shared):
    file = write_ballots("ballots.parquet", ballots(1))
    values = {"kind": "vote", "name": "votes", "ballots": {"files": [file]},
              "privacy": {"records": 4000, "epsilon": 8}, "runtime": shared}  # fmt: skip
    folder = lost_and_run_again(values)
    assert (folder.root / "votes-1" / "released.parquet").is_file()


def test_an_account_goes_on_by_its_command_on_another_machine(shared):
    """How often it may be asked is known from what it holds: the store brings that first."""
    first, second = (write_ballots(f"{seed}.parquet", ballots(seed)) for seed in (1, 2))
    asked: dict[str, Any] = {"name": "votes", "records": 4000, "runtime": RuntimeConfig(**shared)}
    _, labels = release_ballots(VoteRequest(places=(Path(first),), blocks=2, **asked))
    released, root = labels.read_bytes(), labels.parent.parent
    shutil.rmtree(root)
    _, again = release_ballots(VoteRequest(places=(Path(first),), **asked))
    assert again.read_bytes() == released
    shutil.rmtree(root)
    _, later = release_ballots(VoteRequest(places=(Path(second),), **asked))
    assert later.parent.name == "votes-2"
    drawn = [entry.release for entry in entries("votes") if entry.kind is EntryKind.RESERVE]
    assert drawn == ["votes/1", "votes/2"]


def test_a_summary_that_was_paid_for_comes_back(shared):
    file = write_ballots("ballots.parquet", ballots(1))
    request = VoteRequest(places=(Path(file),), name="guess", records=4000,
                          runtime=RuntimeConfig(**shared))  # fmt: skip
    told = replace(request.spec, target=replace(request.target, epsilon=1.0), blocks=(),
                   summary_sigma=60.0)  # fmt: skip
    account, summary = release_summary(request, told)
    certificate = account.folder.certificate.read_bytes()
    shutil.rmtree(account.folder.root)
    again, same = release_summary(request, told)
    assert same == summary
    assert again.folder.certificate.read_bytes() == certificate
    drawn = [entry.release for entry in entries("guess") if entry.kind is EntryKind.RESERVE]
    assert drawn == ["votes/summary"]


def test_teachers_and_their_student_come_back(shared):
    write_data(Path())
    folder = lost_and_run_again(settings("teachers", runtime=shared))
    assert folder.phase(0).model.is_file()


def test_left_at_its_default_the_store_gets_what_was_released_of_each_kind_alone(shared, tmp_path):
    """A run needs nothing of it as long as its own folder is there."""
    del shared["store_holds"]
    file, place = write_ballots("ballots.parquet", ballots(1)), tmp_path / "far" / "store"
    votes = {"kind": "vote", "name": "votes", "ballots": {"files": [file]},
             "privacy": {"records": 4000, "epsilon": 8}, "runtime": shared}  # fmt: skip
    write_data(Path())
    for values in (votes, settings("teachers", runtime=shared)):
        config = parse_any(values)
        certificate = execute_run(config).certificate.read_bytes()
        assert execute_run(config).certificate.read_bytes() == certificate
    assert {path.name.split("-")[0] for path in (place / "released").iterdir()} == {
        "votes", "teachers"
    }  # fmt: skip
    assert [path.name for path in place.iterdir()] == ["released"]


def test_teachers_beside_workers_are_planned_with_such_a_store(shared):
    """What they train is trained by the process that leads, and no label goes to workers."""
    del shared["store_holds"]
    write_data(Path())
    config = parse_any(settings("teachers", runtime={**shared, "training_pool": "gpu"}))
    assert kind_of(config).use_cases().prepare(config).runtime.training_pool == "gpu"
    assert RunPlanViews().plan(config, explained=False).record["name"] == "teachers"
