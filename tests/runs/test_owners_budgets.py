"""Owners of private records promise these less than others do, and their teachers fall silent."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.verify import verify_certificate
from dpal.config.pate import parse_pate
from dpal.errors import ConfigError, DataError
from dpal.ledger.entries import EntryKind
from dpal.runs.ballot_and_label_tables import read_released
from dpal.runs.prepare_ensemble import plan_ensemble
from dpal.runs.teachers import deal_records
from tests.flows.voting import certificate, entries, releases, settings, write_data

OWNERS = [f"site-{number}" for number in range(6)]
FEW = {"queries": 40, "rounds": 2}


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    ids = pq.read_table("private.parquet").column("id")
    whose = [OWNERS[at % len(OWNERS)] for at in range(len(ids))]
    pq.write_table(pa.table({"id": ids, "teacher": whose}), "parts.parquet")
    told = {"teacher": ["site-1", "site-4"], "epsilon": [2.0, 4.0]}
    pq.write_table(pa.table(told), "budgets.parquet")


def config(name, voting=None, **teachers):
    own = {"count": 6, "epochs": 2, "partition": "parts.parquet", "budgets": "budgets.parquet"}
    return parse_pate(settings(name, teachers={**own, **teachers}, voting=voting or FEW))


@pytest.mark.slow
def test_owners_with_less_vote_on_fewer_queries_of_each_round():
    dpal.run(config("sites"))
    assert releases("sites", EntryKind.COMMIT) == ["votes/1", "votes/2"]
    document = certificate("sites")
    assert not any_failed(verify_certificate(document))
    first, second = document["budgets"]
    assert (first["promised"], first["teachers"], second["teachers"]) == (2.0, [1], [4])
    assert 0 < first["queries"][0] < second["queries"][0] < 20
    assert first["epsilon"]["rdp"] <= 2 < document["epsilon"]["rdp"] <= 8
    for number in (1, 2):
        file = Path(f"artifacts/sites/votes-{number}/released.parquet")
        assert read_released(file)[1].shape == (20, 4)
    before = entries("sites")
    dpal.run(config("sites"))
    assert entries("sites") == before


def test_teachers_are_the_same_with_and_without_budgets():
    own, none = (plan_ensemble(config("sites", budgets=file)) for file in ("budgets.parquet", None))
    assert own.spec.teachers == none.spec.teachers
    assert none.spec.budgets == ()


def test_budgets_need_named_owners_and_queries_for_nobody_else():
    with pytest.raises(ConfigError):
        config("sites", partition=None)
    for voting in ({**FEW, "blocks": 1}, {**FEW, "neighbours": 30}):
        with pytest.raises(ConfigError):
            config("sites", voting)
    pq.write_table(pa.table({"teacher": ["site-9"], "epsilon": [1.0]}), "budgets.parquet")
    with pytest.raises(DataError):
        plan_ensemble(config("sites"))


def test_parts_that_are_others_since_they_were_taken_over_are_refused():
    """A record that was moved to an owner with less would go on voting for another one."""
    ensemble = plan_ensemble(config("sites"))
    deal_records(ensemble)
    deal_records(ensemble)
    parts = pq.read_table("parts.parquet")
    others = [*OWNERS[1:], OWNERS[0]]
    whose = [others[at % len(others)] for at in range(len(parts))]
    pq.write_table(pa.table({"id": parts.column("id"), "teacher": whose}), "parts.parquet")
    with pytest.raises(DataError) as refused:
        dpal.run(config("sites"))
    assert "parts.parquet deals" in str(refused.value)
    assert releases("sites") == []
    pq.write_table(parts, "parts.parquet")
    deal_records(plan_ensemble(config("sites")))
