"""Campaigns, reruns, votes and improvements share one limit, whenever records are registered."""

from __future__ import annotations

import csv
import itertools
import json
import random
from pathlib import Path

import pytest
import yaml

from dpal.accounting.renyi_filter import RenyiFilter
from dpal.files.artifacts import RECORD, CampaignFolder
from dpal.ledger.campaign_account import campaign_account, campaigns_in
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.privacy import Adjacency
from tasks.wait_for_people import waiting_phases
from tests.conftest import small_values, write_blobs, write_config
from tests.flows import improving, voting
from tests.flows.calling import Result, call, sentence

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("orchestrated")]

LIMIT = RenyiFilter.fitted(8.0, 1e-4)
FIRST = Path("artifacts/first")


@pytest.fixture
def clinic(workplace, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(workplace / "state"))
    write_blobs(Path("pool/january.parquet"), 600, seed=1)
    write_blobs(Path("public.parquet"), 400, seed=3, prefix="p")
    return workplace


def entries() -> list:
    if not Path("artifacts/ledger.sqlite").exists():
        return []
    store = LedgerStore(Path("artifacts/ledger.sqlite"), create=False)
    try:
        return store.entries()
    finally:
        store.close()


def register() -> Result:
    return call("data", "register", "clinic", "pool", "--epsilon", "8", "--delta", "1e-4")


def is_registered() -> bool:
    return any(one.kind is EntryKind.BLOCK for one in entries())


def write(file: str, values: dict) -> str:
    """Settings of a run; those of one that has begun stay as they are."""
    if not Path(file).exists() or not Path("artifacts", values["name"]).exists():
        if is_registered():
            values["data"]["dataset"] = "clinic"
        Path(file).write_text(yaml.safe_dump(values), encoding="utf-8")
    return file


def pool() -> list[str]:
    """All files that are there now; a folder would grow under a run that has begun."""
    return [str(path) for path in sorted(Path("pool").glob("*.parquet"))]


def run_first() -> Result:
    """A campaign whose labels come from people: it holds its plan, trains, and waits."""
    values = small_values(
        name="first",
        data={"pool": "pool/january.parquet", "validation": "validation.parquet"},
        privacy={"selection": "visible", "epsilon": 3.0, "delta": 1e-4},
        schedule={"initial": 60, "queries": [20], "batch_size": 20, "epochs_per_phase": 1},
        labeler={"kind": "file"},
    )
    return call("run", write("first.yaml", values))


def answer() -> None:
    """People label the open query of the first campaign."""
    (files, _), *_ = waiting_phases(CampaignFolder(FIRST))
    with (files.query / "query.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    with Path("answers.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "label"])
        writer.writeheader()
        writer.writerows({"id": row["id"], "label": int(row["id"][-1]) % 3} for row in rows)
    assert call("label", str(FIRST), "answers.csv").returncode == 0


def finish_first() -> Result:
    """Labels until the campaign is done."""
    for _ in range(4):
        done = run_first()
        if not waiting_phases(CampaignFolder(FIRST)):
            return done
        answer()
    return done


def test_a_campaign_whose_records_are_registered_goes_on_and_is_counted(clinic):
    assert run_first().returncode != 2
    held = [one for one in entries() if one.kind is EntryKind.HOLD]
    answer()
    done = register()
    assert done.returncode == 0, done
    assert "block 0: 600 new" in done.stdout and "what first left" in done.stdout
    finished = finish_first()
    assert finished.returncode == 0, finished
    assert [one for one in entries() if one.kind is EntryKind.HOLD] == held
    (block,) = json.loads(call("data", "show", "clinic", "--json").stdout)["clinic"]["blocks"]
    assert block["campaigns"] == ["first"]
    assert block["epsilon_taken"] > 3.0 and 0 < block["share_left"] < 1
    # Another campaign on the same records must share the limit.
    people = {"name": "other", "data__pool": "pool", "labeler": {"kind": "file"}}
    other = write_config(Path("other.yaml"), **people)
    assert "sets data.dataset: clinic" in sentence(call("run", str(other)))


def test_records_that_a_run_spent_on_are_registered_only_where_they_can_be_compared(clinic):
    assert run_first().returncode != 2
    Path("pool/january.parquet").rename("january.parquet")
    write_blobs(Path("pool/march.parquet"), 200, seed=9, prefix="n")
    said = sentence(register())
    assert "first spent on" in said
    assert not any(one.kind is EntryKind.REGISTER for one in entries())
    given = ("data", "register", "clinic", "pool", "--epsilon", "8", "--delta", "1e-4", "--apart")
    assert "needs a reason" in sentence(call(*given, " "))
    done = call(*given, "other patients")
    assert "200 new" in done.stdout and "200 new records with the whole limit" in done.stdout
    (block,) = [one.body for one in entries() if one.kind is EntryKind.BLOCK]
    assert block["apart"] == {"campaigns": ["first"], "reason": "other patients"}
    # The ids that it kept show that these were in it, whatever the file is called.
    added = call("data", "add", "clinic", "january.parquet")
    assert "600 new" in added.stdout and "what first left" in added.stdout


def test_a_second_promise_on_the_same_files_is_noticed(clinic):
    assert run_first().returncode != 2
    values = small_values(name="other", data__pool="pool/january.parquet", labeler={"kind": "file"})
    said = call("run", write("other.yaml", values))
    assert "first (epsilon 3)" in said.stdout + said.stderr


def add() -> Result:
    write_blobs(Path("pool/march.parquet"), 300, seed=5, prefix="n")
    return call("data", "add", "clinic", "pool")


def rerun() -> Result:
    """What goes on from the first campaign needs it finished, and a data set."""
    if FIRST.exists():
        finish_first()
    values = small_values(
        name="second",
        data={"pool": pool(), "validation": "validation.parquet"},
        privacy={"selection": "visible", "epsilon": 2.0, "delta": 1e-4},
        schedule={"initial": 60, "queries": [20], "batch_size": 20, "epochs_per_phase": 1},
        start_from="first",
    )
    return call("run", write("second.yaml", values))


def vote() -> Result:
    data = {"pool": pool(), "validation": "validation.parquet"}
    shape = {"teachers": {"count": 30, "epochs": 2}, "voting": {"queries": 20}}
    privacy = {"epsilon": 3.0, "delta": 1e-4}
    return call(
        "run", write("votes.yaml", voting.settings("votes", data=data, privacy=privacy, **shape))
    )


def improve() -> Result:
    choice = {"method": "near_private", "labels": 60, "candidates": 150, "components": 3}
    data = {"pool": pool(), "validation": "validation.parquet"}
    return call("run", write("near.yaml", improving.settings("near", choice=choice, data=data)))


STEPS = (run_first, register, add, rerun, vote, improve)
ORDERS = random.Random(7).sample(list(itertools.permutations(STEPS)), 20)


def require_limit() -> None:
    """What was released of the first records, run by run, is within the limit once there is one."""
    found = entries()
    if not any(one.kind is EntryKind.BLOCK for one in found):
        return
    accounts = [campaign_account(found, name) for name in campaigns_in(found)]
    spent = [[one.release for one in account.releases] for account in accounts]
    taken = [LIMIT.charge(one, Adjacency.ZERO_OUT).divergence for one in spent if one]
    alone = len(taken) == 1 and accounts[0].target.epsilon <= LIMIT.epsilon
    assert sum(taken) <= LIMIT.limit.divergence or alone


def stands(name: str) -> str:
    """How far `dpal status` says that a run is."""
    told = call("status", f"artifacts/{name}")
    assert told.returncode == 0, (name, told)
    (row,) = [line for line in told.stdout.splitlines() if f" {name} " in line]
    return row


def is_done(name: str) -> bool:
    """Whether its last files are there: its certificate."""
    return Path("artifacts", name, "certificate.json").is_file()


def require_status() -> None:
    """What is said to be finished is, and nothing else."""
    for name in campaigns_in(entries()):
        if Path("artifacts", name, RECORD).is_file():
            row = stands(name)
            assert ("finished" in row.split()) is is_done(name), (name, row)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(one.__name__ for one in order))
def test_in_whatever_order_the_limit_is_kept_and_nothing_is_stuck(clinic, order):
    for step in order:
        done = step()
        assert "Traceback" not in done.stderr and "unexpected" not in done.stderr, done
        require_limit()
        require_status()
    begun, again = set(campaigns_in(entries())), (finish_first, rerun, vote, improve)
    for name, step in zip(("first", "second", "votes", "near"), again, strict=True):
        if name in begun:
            done = step()
            assert done.returncode == 0, (name, done)
            assert is_done(name) and "finished" in stands(name)
            require_limit()
