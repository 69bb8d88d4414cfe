"""Votes, campaigns and their baselines on one data set: one limit for all that is released."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flows.pate
from dpal.accounting.renyi_filter import NOTHING, Amount, RenyiFilter
from dpal.config.pate import parse_pate
from dpal.errors import DataBudgetExceeded, DataError, LedgerError
from dpal.files.artifacts import RECORD
from dpal.ledger.data_set_accounts import Limit, data_set
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.privacy import Adjacency, Unit
from dpal.runs.open_ledger import open_ledger
from dpal.runs.plan_new_campaign import registry_of
from dpal.runs.prepare_ensemble import Ensemble, plan_ensemble
from dpal.runs.student import STUDENT
from tasks.pate import hold_ensemble
from tasks.training_pool.repeatable_order import train
from tests.conftest import write_blobs
from tests.flows import improving
from tests.flows.calling import Result, call, sentence
from tests.flows.voting import (
    TEACHERS,
    checked,
    entries,
    releases,
    settings,
    write_campaign,
    write_data,
    write_records,
    write_settings,
)

DATA = {"pool": "private.parquet", "validation": "validation.parquet", "dataset": "clinic"}
TEACHERS_OF_SECONDS = {"count": TEACHERS, "epochs": 1}
VOTES: dict[str, dict[str, Any]] = {
    "data": DATA,
    "teachers": TEACHERS_OF_SECONDS,
    "voting": {"queries": 20},
    "privacy": {"epsilon": 4.0, "delta": 1e-4},
    "student": {"epochs": 1},
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path, groups=30)


def register(*more: str, epsilon: float = 8) -> None:
    limit = ("--epsilon", str(epsilon), "--delta", "1e-4")
    done = call("data", "register", "clinic", "private.parquet", *limit, *more)
    assert done.returncode == 0, done


def run(file: str) -> Result:
    done = call("run", file)
    assert done.returncode == 0, done
    return done


def blocks():
    with closing(LedgerStore(Path("artifacts/ledger.sqlite"), create=False)) as store:
        known = data_set(store.verified(), "clinic")
    assert all(one.taken.within(known.limit.filter.limit) or one.sole for one in known.blocks)
    return known.blocks


def refused(file: str, name: str) -> str:
    """The sentence of a refusal that held, trained and released nothing."""
    said = sentence(call("run", file))
    assert entries(name) == []
    assert not Path("artifacts", name, RECORD).exists()
    assert not list(Path("artifacts", name).rglob("teacher-*"))
    return said


def hold(name: str, epsilon: float) -> Ensemble:
    """Plans an account and holds it, and trains nobody."""
    values = settings(name, **{**VOTES, "privacy": {"epsilon": epsilon, "delta": 1e-4}})
    ensemble = plan_ensemble(parse_pate(values))
    with lock_folder(ensemble.folder.root):
        hold_ensemble.fn(ensemble)
    return ensemble


def share_of(ensemble: Ensemble) -> Amount:
    """What it holds of the data set's only block."""
    assert ensemble.data is not None
    return ensemble.data.shares[0].amount


@pytest.mark.slow
def test_accounts_of_votes_never_hold_more_than_the_limit_together():
    """One by one until one does not fit; each is held as it was planned, and again the same."""
    register(epsilon=6)
    held = []
    with pytest.raises(DataBudgetExceeded) as refusal:
        for number in range(10):
            held.append(hold(f"votes-{number}", 4.0))
    assert len(held) == 1
    assert refusal.value.holders == refusal.value.running == "votes-0"
    hold("small", 2.0)
    (block,) = blocks()
    assert block.campaigns == ("votes-0", "small")
    assert block.taken == sum(map(share_of, (held[0], hold("small", 2.0))), NOTHING)
    assert hold("votes-0", 4.0).data == held[0].data
    assert len(entries("votes-0")) == 1
    labeler, privacy = {"kind": "oracle"}, {"epsilon": 4.0, "delta": 1e-4, "selection": "visible"}
    file = write_campaign("campaign", data=DATA, labeler=labeler, privacy=privacy)
    assert "taken by votes-0, small" in sentence(call("plan", file))


@pytest.mark.slow  # trains teachers
@pytest.mark.usefixtures("orchestrated")
def test_votes_and_a_campaign_share_a_limit_and_what_does_not_fit_is_refused():
    register(epsilon=6)
    unsaid = write_settings("unsaid", **VOTES, data__dataset=None)
    assert "sets data.dataset: clinic" in refused(unsaid, "unsaid")

    votes = write_settings("votes", **VOTES)
    planned = json.loads(call("plan", votes, "--json").stdout)["data"]
    assert [one["basis"] for one in planned["blocks"]] == ["renyi"]
    assert "with other campaigns" in call("plan", votes).stdout
    first = run(votes)
    (alone,) = blocks()
    assert alone.campaigns == ("votes",)
    (hold,) = (one for one in entries("votes") if one.kind is EntryKind.HOLD)
    assert hold.body["data"] == planned

    privacy = {"epsilon": 3.0, "delta": 1e-4, "selection": "visible"}
    labeler = {"kind": "oracle"}
    run(write_campaign("campaign", data=DATA, labeler=labeler, privacy=privacy))
    (both,) = blocks()
    assert both.campaigns == ("votes", "campaign")
    assert both.taken.divergence > alone.taken.divergence

    again = write_settings("again", **VOTES)
    assert "take block 0" in refused(again, "again")
    assert "votes, campaign" in sentence(call("plan", again))
    assert blocks() == (both,)

    before = len(entries("votes"))
    assert run(votes).stdout == first.stdout  # held: it goes on, whatever is left
    assert len(entries("votes")) == before
    shown = json.loads(call("data", "show", "clinic", "--json").stdout)
    assert {"votes", "campaign"} <= set(json.dumps(shown).replace('"', " ").split())
    for account in ("votes", "campaign"):
        done = checked(account)
        assert done.returncode == 0, done.stdout
        assert "on clinic together stay" in done.stdout
    status = call("status")
    assert "votes" in status.stdout
    assert status.stdout.count("finished") == 2
    assert call("ledger", "show", "artifacts/votes").returncode == 0
    assert call("end", "artifacts/votes").returncode == 0
    assert call("end", "artifacts/votes").returncode == 0  # changes nothing
    assert len(entries("votes")) == before + 1
    (ended,) = blocks()
    assert ended.taken == both.taken  # all of it was used
    assert (both.running, ended.running) == (("votes",), ())
    after = checked("votes")
    assert after.returncode == 0, after.stdout
    moved = write_settings("votes", **VOTES, data__dataset=None)
    assert "started on" in sentence(call("run", moved))


@pytest.mark.slow  # trains teachers once more
@pytest.mark.usefixtures("orchestrated")
def test_votes_that_take_a_block_whole_leave_nothing_for_a_baseline_and_are_certified():
    register()
    whole = {**VOTES, "privacy": {"epsilon": 8.0, "delta": 1e-4}}
    done = run(write_settings("votes", **whole, baselines={"run": ["dp_sgd", "private_knn"]}))
    (block,) = blocks()
    assert block.sole == "votes"
    assert {one for one in ("votes-dp-sgd", "votes-private-knn") if entries(one)} == set()
    for name in ("dp_sgd", "private_knn"):
        assert f"{name} is left" in done.stderr
    assert checked("votes").returncode == 0
    assert releases("votes") == ["votes/1"]


@pytest.mark.slow  # trains teachers once more
@pytest.mark.usefixtures("orchestrated")
def test_private_baselines_take_shares_of_their_own():
    register(epsilon=12)
    compared = {"run": ["dp_sgd", "private_knn"], "epochs": 1, "batch_size": 60}
    run(write_settings("votes", **VOTES, baselines=compared))
    (block,) = blocks()
    assert block.campaigns == ("votes", "votes-dp-sgd", "votes-private-knn")
    assert block.running == ("votes",)  # the others have no more to release
    judged = json.loads(Path("artifacts/votes/methods.json").read_text(encoding="utf-8"))
    assert set(judged) == {"pate", "dp_sgd", "private_knn"}


@pytest.mark.slow  # trains teachers once more
@pytest.mark.usefixtures("orchestrated")
def test_records_registered_meanwhile_leave_baselines_out_and_votes_are_certified(monkeypatch):
    """Their accounts would be counted by nobody; the votes were held before, and are."""

    def registering(ensemble, training):
        if training is STUDENT:
            register(epsilon=12)
        train(ensemble, training)

    monkeypatch.setattr(flows.pate, "train", registering)
    compared = {"run": ["dp_sgd", "private_knn"], "epochs": 1, "batch_size": 60}
    votes = {**VOTES, "data": {key: DATA[key] for key in ("pool", "validation")}}
    done = run(write_settings("votes", **votes, baselines=compared))
    for name in ("dp_sgd", "private_knn"):
        assert f"{name} is left" in done.stderr
    assert {one for one in ("votes-dp-sgd", "votes-private-knn") if entries(one)} == set()
    (block,) = blocks()
    assert (block.campaigns, block.earlier) == (("votes",), ("votes",))
    assert checked("votes").returncode == 0


@pytest.mark.slow  # trains teachers once more
@pytest.mark.usefixtures("orchestrated")
def test_groups_are_those_of_the_data_set_and_count_once():
    register("--group", "patient")
    run(write_settings("votes", **VOTES))
    (block,) = blocks()
    assert (block.size, block.campaigns) == (30, ("votes",))
    (hold,) = (one for one in entries("votes") if one.kind is EntryKind.HOLD)
    assert hold.body["unit"] == "group"
    assert hold.body["data"]["blocks"][0]["size"] == 30
    assert checked("votes").returncode == 0


@pytest.mark.slow  # trains the start of an improvement
@pytest.mark.usefixtures("orchestrated")
def test_votes_share_the_limit_of_an_improvement_and_its_start(tmp_path):
    write_blobs(tmp_path / "private.parquet", 600, seed=1)
    write_blobs(tmp_path / "validation.parquet", 300, seed=2, prefix="v")
    write_blobs(tmp_path / "public.parquet", 400, seed=3, prefix="p")
    register(epsilon=6)
    about = {
        "data": DATA,
        "choice": {"method": "near_private", "labels": 60, "components": 3},
        "start": {"batch_size": 100, "epochs": 3},
    }
    run(improving.write("better", **about))
    (taken,) = blocks()
    assert set(taken.campaigns) == {"better", "better-start"}
    with pytest.raises(DataBudgetExceeded) as refusal:
        hold("votes", 5.0)
    assert set(refusal.value.holders.split(", ")) == set(taken.campaigns)
    assert entries("votes") == []
    small = hold("votes", 1.5)
    (both,) = blocks()
    assert both.taken == taken.taken + share_of(small)
    refused(improving.write("more", **about), "more")
    assert blocks() == (both,)


def test_teachers_protect_whom_the_data_set_protects():
    register()
    grouped = {**TEACHERS_OF_SECONDS, "group_column": "patient"}
    said = sentence(call("plan", write_settings("votes", **{**VOTES, "teachers": grouped})))
    assert "group_column groups by 'patient'" in said
    other = {**VOTES, "privacy": {**VOTES["privacy"], "adjacency": "replace_one"}}
    said = sentence(call("plan", write_settings("votes", **other)))
    assert "set privacy.adjacency: zero_out" in said
    public = write_settings("votes", **VOTES, public__pool="site.parquet")
    done = call("data", "register", "sites", "site.parquet", "--epsilon", "8", "--delta", "1e-4")
    assert done.returncode == 0, done
    assert "set sites" in sentence(call("plan", public))


@pytest.mark.parametrize("group", [(), ("--group", "patient")], ids=["records", "groups"])
def test_a_row_with_the_content_of_another_block_would_vote_unpaid(group):
    """A teacher learns from every row that it has, so that none may be passed over."""
    later = pq.read_table(write_records(Path("later.parquet"), 40, seed=9, prefix="late"))
    patients = pa.array([f"late-patient-{at % 5}" for at in range(40)])
    pq.write_table(later.append_column("patient", patients), "later.parquet")
    register(*group)
    assert call("data", "add", "clinic", "later.parquet").returncode == 0
    table = pq.read_table("private.parquet")
    contents = pa.chunked_array([later["features"].chunk(0)[:1], table["features"].chunk(0)[1:]])
    at = table.column_names.index("features")
    pq.write_table(table.set_column(at, "features", contents), "mixed.parquet")
    said = sentence(call("plan", write_settings("votes", **VOTES, data__pool="mixed.parquet")))
    assert "1 of 240 rows" in said
    assert "take them out" in said
    assert call("plan", write_settings("whole", **VOTES)).returncode == 0


def test_an_account_that_is_held_goes_on_when_its_records_are_registered_later():
    """Its promise was made before; only new accounts are held to the data set."""
    unsaid = {**VOTES, "data": {**DATA, "dataset": None}}
    before = plan_ensemble(parse_pate(settings("votes", **unsaid)))
    with lock_folder(before.folder.root):
        hold_ensemble.fn(before)
    limit = Limit(
        filter=RenyiFilter.fitted(8.0, 1e-4), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD
    )
    with closing(open_ledger(before.config.runtime)) as store:
        registry = registry_of(before.config.runtime.artifacts, store)
        registry.register("clinic", limit)
        registry.add("clinic", before.pool)
    assert plan_ensemble(parse_pate(settings("votes", **unsaid))).certified == before.certified
    with pytest.raises(DataError, match=r"sets data\.dataset: clinic"):
        plan_ensemble(parse_pate(settings("more", **unsaid)))
    with pytest.raises(LedgerError, match="was started on no data set"):
        plan_ensemble(parse_pate(settings("votes", **VOTES)))
