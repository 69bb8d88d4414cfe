"""Campaigns that protect persons with all their records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.canonical import plain
from dpal.certificate.checks import any_failed
from dpal.certificate.read_and_seal import read_certificate
from dpal.data.labeling_state import (
    cohort_column,
    group_column,
    labels_of,
    read_selection,
)
from dpal.errors import ConfigError, ParameterError
from dpal.planning.campaign_spec import Groups, ProtectedValidation
from dpal.privacy import Unit
from dpal.training.dp_sgd import PrivateGradient
from tests.conftest import small_spec, write_blobs

PERSONS = 400
MODES: dict[str, dict[str, Any]] = {
    "random": {"privacy": {"selection": "hidden", "epsilon": 20}, "acquisition": "random"},
    "hidden": {"privacy": {"selection": "hidden", "epsilon": 20}, "schedule__queries": [100]},
    "visible": {"privacy": {"selection": "visible", "epsilon": 20}},
    "paper": {"privacy": {"selection": "paper", "epsilon": 20}},
}


@pytest.fixture
def persons(workplace: Path) -> Path:
    """The small pool as 400 persons of one to five records each, none side by side."""
    write_blobs(workplace / "pool.parquet", 1200, seed=1)
    table = pq.read_table("pool.parquet")
    owners = np.concatenate([np.arange(PERSONS), np.arange(800) % 200 + 100])
    names = [f"person-{owner}" for owner in np.random.default_rng(3).permutation(owners)]
    pq.write_table(table.append_column("person", pa.array(names)), "pool.parquet")
    return workplace


def grouped(mode: str = "visible", **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {**MODES[mode], "data__group_column": "person", **more}
    return {**values, "privacy": {**values["privacy"], "unit": "group"}}


def owners() -> dict[str, str]:
    table = pq.read_table("pool.parquet")
    return dict(zip(table["id"].to_pylist(), table["person"].to_pylist(), strict=True))


@pytest.mark.parametrize("mode", MODES)
def test_whole_persons_are_selected_labeled_and_trained_on(persons, small, mode, monkeypatch):
    seen: list[np.ndarray] = []
    real = PrivateGradient.clipped_sum

    def watched(self, inputs, labels, sizes=None):
        seen.append(sizes)
        return real(self, inputs, labels, sizes)

    monkeypatch.setattr(PrivateGradient, "clipped_sum", watched)
    config = small(**grouped(mode, schedule__group_records=3))
    folder = dpal.run(config)
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))
    plan = folder.read_record()["plan"]
    assert (plan["unit"], plan["pool_size"]) == ("group", PERSONS)
    assert plan["groups"] == {"column": "person", "records": 3, "labels": None}
    steps = [sizes for sizes in seen if sizes is not None]
    assert len(steps) >= sum(phase["steps"] for phase in plan["phases"])
    assert max(int(sizes.max(initial=0)) for sizes in steps) == 3
    whose, person_of = owners(), np.asarray(group_column(folder.start))
    met: set[str] = set()
    for phase in folder.finished_phases():
        files = folder.phase(int(phase["phase"]))
        chosen = {whose[name] for name in read_selection(files.selection)}
        assert not chosen & met  # a person joins once, with the first record
        met |= chosen
        state = cohort_column(files.pool)
        for cohort in range(int(phase["phase"]) + 1):
            inside = np.unique(person_of[state == cohort])
            assert np.isin(person_of, inside).sum() == (state == cohort).sum()
    labeled = labels_of(files.pool)
    assert set(labeled) == {name for name, person in whose.items() if person in met}
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    assert certificate["promise"]["unit"] == "group"
    assert certificate["pool"]["size"] == PERSONS
    assert "groups" in certificate
    assert any("which group" in said for said in certificate["exceptions"])
    assert "group" in folder.report.read_text(encoding="utf-8")


def test_labels_may_be_bought_of_some_records_of_each(persons, small):
    folder = dpal.run(small(**grouped("random", schedule__group_labels=2)))
    whose, labeled = owners(), labels_of(folder.phase(2).pool)
    counts = np.unique([whose[name] for name in labeled], return_counts=True)[1]
    assert set(counts) == {1, 2}
    firsts: dict[str, list[str]] = {}
    for name, person in whose.items():
        firsts.setdefault(person, []).append(name)
    assert all(name in firsts[whose[name]][:2] for name in labeled)


def test_a_campaign_goes_on_where_it_was_stopped(persons, small, monkeypatch):
    class Killed(BaseException):
        """Nothing catches it."""

    real, steps = PrivateGradient.release, []

    def killed(self, *given):
        steps.append(1)
        if len(steps) == 12:
            raise Killed
        return real(self, *given)

    config = small(**grouped("visible"))
    monkeypatch.setattr(PrivateGradient, "release", killed)
    with pytest.raises(Killed):
        dpal.run(config)
    folder = dpal.run(config)
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))


def test_everybody_trains_at_the_end_with_all_records(persons, small):
    folder = dpal.run(small(**grouped("random", self_training={"epochs": 1})))
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))
    assert (cohort_column(folder.phase(3).pool) >= 0).all()


def test_the_plan_says_who_is_protected_and_how(persons, small):
    explained = dpal.plan(small(**grouped()))
    assert explained.summary()["groups"]["column"] == "person"
    assert explained.summary()["unit"] == "group"
    # The plan of as many records is the same but for whom it is about.
    alone = dpal.plan(small(**MODES["visible"], name="alone"))
    assert alone.summary()["pool_size"] == 1200


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"privacy__unit": "group"}, "data.group_column"),
        ({"data__group_column": "person"}, "privacy.unit"),
        (
            {"privacy__unit": "group", "data__group_column": "person", "data__dataset": "clinic"},
            "data.dataset",
        ),
        (
            {"privacy__unit": "group", "data__group_column": "person", "labeler": {"kind": "form"},
             "schedule__initial": 20, "schedule__queries": [20]},
            "labeler.kind form",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(small, settings, named):
    with pytest.raises(ConfigError) as refused:
        small(**settings)
    assert named in str(refused.value)


def test_more_persons_than_there_are(persons, small):
    with pytest.raises(ParameterError) as refused:
        dpal.plan(small(**grouped(schedule__initial=500)))
    assert "400 groups" in str(refused.value)


def test_plans_of_records_are_written_as_before():
    assert "groups" not in plain(small_spec())


def test_near_private_on_top_counts_one_record_of_each_person(persons, small, mlflow_uri):
    write_blobs(persons / "public.parquet", 400, seed=3, prefix="p")
    dpal.run(small(**grouped("visible", name="begun", model={"name": "mlp", "hidden": [6]})))
    values = {
        "kind": "public",
        "name": "near",
        "public": {"pool": "public.parquet"},
        "start": {"campaign": "begun"},
        "choice": {"method": "near_private", "labels": 60, "candidates": 150, "components": 3},
        "privacy": {"epsilon": 40.0, "delta": 1e-4},
        "fine_tuning": {"epochs": 2, "learning_rate": 0.01, "batch_size": 16},
        "runtime": {"mlflow_uri": mlflow_uri},
    }
    folder = dpal.run(dpal.settings(values))
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    assert certificate["promise"]["unit"] == "group"
    support = pq.read_table(folder.root / "phase-0" / "guidance" / "support.parquet")["support"]
    # 400 persons have as many votes; their 1,200 records would have had three times as many.
    assert np.asarray(support).sum() < 600


def test_a_validation_set_that_is_protected_record_by_record_is_refused():
    spec = small_spec()
    grouped_spec = replace(
        spec,
        target=replace(spec.target, unit=Unit.GROUP),
        groups=Groups(column="person", records=2),
    )
    with pytest.raises(ParameterError) as refused:
        replace(grouped_spec, validation=ProtectedValidation(records=300, epsilon=1.0))
    assert "privacy.unit" in str(refused.value)
