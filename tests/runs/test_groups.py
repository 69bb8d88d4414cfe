"""Campaigns that protect persons with all their records."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.accounting.events import VALIDATION
from dpal.audit.audit_campaign_plan import Effort
from dpal.canonical import plain
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.kinds.campaign import CAMPAIGN, _unpaid_figures
from dpal.certificate.read_and_seal import read_certificate
from dpal.data.groups import measured_owners
from dpal.data.labeling_state import (
    cohort_column,
    group_column,
    labels_of,
    load_all,
    read_selection,
)
from dpal.errors import ConfigError, DataError, ParameterError
from dpal.ledger.release_json import release_from
from dpal.models.build_model import build_model
from dpal.planning.campaign_spec import Groups, ProtectedValidation
from dpal.planning.explain_campaign import explain_campaign
from dpal.privacy import Unit
from dpal.runs import audit_by_attacks, phase_measuring
from dpal.runs.prepare_campaign import prepare
from dpal.training.dp_sgd import PrivateGradient
from dpal.training.evaluation import probabilities
from dpal.training.noisy_metrics import confusion_counts
from dpal.training.noisy_validation_counts import ReleasedCounts, headline_of
from tests.conftest import nothing_released, small_spec, write_blobs
from tests.variants import quick_and_slow

PERSONS = 400
MODES: dict[str, dict[str, Any]] = {
    "random": {"privacy": {"selection": "hidden", "epsilon": 20}, "acquisition": "random"},
    "hidden": {"privacy": {"selection": "hidden", "epsilon": 20}, "schedule__queries": [100]},
    "visible": {"privacy": {"selection": "visible", "epsilon": 20}},
    "paper": {"privacy": {"selection": "paper", "epsilon": 20}},
}
# Chance draws in the open: such a campaign is certified in less time.
OPEN_DRAW: dict[str, Any] = {"acquisition": "random", "schedule__queries": [40]}


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


@pytest.mark.parametrize("mode", quick_and_slow(["hidden"], MODES))
def test_whole_persons_are_selected_labeled_and_trained_on(
    persons, small, mode, monkeypatch, caplog
):
    caplog.set_level("INFO", logger="dpal")
    seen: list[np.ndarray] = []
    real = PrivateGradient.clipped_sum

    def watched(self, inputs, labels, sizes=None):
        seen.append(sizes)
        return real(self, inputs, labels, sizes)

    monkeypatch.setattr(PrivateGradient, "clipped_sum", watched)
    config = small(**grouped(mode, schedule__group_records=3))
    folder = dpal.run(config)
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))
    told = [said for said in caplog.messages if "drawing" in said or "selecting" in said]
    assert told
    assert all("groups" in said and "records" not in said for said in told)
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


@pytest.mark.slow
def test_labels_may_be_bought_of_some_records_of_each(persons, small):
    folder = dpal.run(small(**grouped("visible", **OPEN_DRAW, schedule__group_labels=2)))
    whose, labeled = owners(), labels_of(folder.phase(1).pool)
    counts = np.unique([whose[name] for name in labeled], return_counts=True)[1]
    assert set(counts) == {1, 2}
    firsts: dict[str, list[str]] = {}
    for name, person in whose.items():
        firsts.setdefault(person, []).append(name)
    assert all(name in firsts[whose[name]][:2] for name in labeled)


@pytest.mark.slow
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


@pytest.mark.slow
def test_everybody_trains_at_the_end_with_all_records(persons, small):
    folder = dpal.run(small(**grouped("visible", **OPEN_DRAW, self_training={"epochs": 1})))
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))
    assert (cohort_column(folder.phase(2).pool) >= 0).all()


@pytest.mark.slow
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
            "data.group_column",
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


@pytest.mark.slow
def test_near_private_on_top_counts_one_record_of_each_person(persons, small, mlflow_uri):
    write_blobs(persons / "public.parquet", 400, seed=3, prefix="p")
    model = {"name": "mlp", "hidden": [6]}
    dpal.run(small(**grouped("visible", name="begun", model=model, schedule__queries=[])))
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


def test_a_validation_set_is_protected_as_the_pool_is():
    spec = small_spec()
    grouped_spec = replace(
        spec,
        target=replace(spec.target, unit=Unit.GROUP),
        groups=Groups(column="person", records=2),
    )
    by_record = ProtectedValidation(records=300, epsilon=1.0)
    by_group = replace(by_record, groups=120, group_records=3)
    assert (by_record.owners, by_group.owners) == (300, 120)
    assert replace(grouped_spec, validation=by_group).validation == by_group
    assert "groups" not in plain(by_record) and "group_records" not in plain(by_record)
    for refused_spec, validation in ((grouped_spec, by_record), (spec, by_group)):
        with pytest.raises(ParameterError) as refused:
            replace(refused_spec, validation=validation)
        assert "privacy.unit" in str(refused.value)
    for wrong in ({"groups": 301}, {"groups": 99}, {"groups": None}, {"groups": 0}):
        with pytest.raises(ParameterError):
            replace(by_group, **wrong)


HELD_OUT = 90  # persons of one to five records, 300 in all
PROTECTED: dict[str, Any] = {"protected": True, "epsilon": 10.0, "group_records": 2}


@pytest.fixture
def held_out(persons: Path) -> Path:
    """The same pool, and a validation set of other persons."""
    owners = np.concatenate([np.arange(HELD_OUT), np.arange(210) % 53])
    names = [f"held-out-{owner}" for owner in np.random.default_rng(4).permutation(owners)]
    with_persons("validation.parquet", names)
    return persons


def with_persons(file: str, names: list[str]) -> None:
    table = pq.read_table(file)
    if "person" in table.column_names:
        table = table.drop_columns(["person"])
    pq.write_table(table.append_column("person", pa.array(names)), file)


@pytest.mark.slow
def test_a_protected_validation_set_is_measured_and_charged_by_persons(held_out, small):
    config = small(**grouped("random", validation=PROTECTED, schedule__queries=[40]))
    folder = dpal.run(config)
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))
    told = folder.read_record()["plan"]["validation"]
    names = pq.read_table("validation.parquet")["person"].to_pylist()
    sizes = np.unique(names, return_counts=True)[1]
    kept = int(np.minimum(sizes, 2).sum())
    assert (told["records"], told["groups"], told["group_records"]) == (kept, HELD_OUT, 2)
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    cohort = certificate["cohorts"][-1]
    assert (cohort["cohort"], cohort["planned_size"]) == (VALIDATION, HELD_OUT)
    # Two records of a person in one count, and the spread: 4 + 1.
    assert {event["moved"] for event in cohort["events"]} == {5}
    assert 9.9 < cohort["epsilon_pld"] <= 10
    assert not any("not protected" in one and "metrics" in one for one in certificate["exceptions"])
    for phase in folder.finished_phases():
        written = folder.phase(int(phase["phase"])).validation.read_text()
        released = ReleasedCounts.from_json(written)
        assert (released.records, released.groups, released.group_records) == (kept, HELD_OUT, 2)
        name, interval = headline_of(released)
        assert (name, phase["validation_accuracy"]) == ("accuracy", interval.value)
    evidence = CAMPAIGN.read(certificate)
    held = [release_from(record) for record in evidence.hold.body["releases"]]
    plan = copy.deepcopy(dict(evidence.plan))
    assert list(_unpaid_figures(plan, held)) == []
    plan["spec"]["validation"]["group_records"] = 3
    assert len(list(_unpaid_figures(plan, held))) == 1
    del plan["spec"]["validation"]["group_records"], plan["spec"]["validation"]["groups"]
    assert len(list(_unpaid_figures(plan, held))) == 1
    explained = explain_campaign(prepare(config).certified)
    (remark,) = [one for one in explained if one.numbers.get("groups") == HELD_OUT]
    assert f"{HELD_OUT} groups" in remark.text


@pytest.mark.slow
def test_an_audit_reads_no_protected_person(held_out, small, monkeypatch):
    read: list[str] = []

    def reading(source):
        read.append(source.name)
        return load_all(source)

    monkeypatch.setattr(audit_by_attacks, "load_all", reading)
    campaign = prepare(small(**grouped("random", validation=PROTECTED)))
    audited = audit_by_attacks.audit_campaign(
        campaign, Effort(canaries=40, most_steps=4, draws=1 << 16)
    )
    assert audited.findings
    assert read and all(name.endswith("made-up.parquet") for name in read)


def test_a_whole_person_replaced_moves_no_more_than_two_counts(held_out, small):
    """One with five records in the file: all of them say something else than they did."""
    campaign = prepare(small(**grouped("visible", **OPEN_DRAW, validation={"protected": True})))
    campaign = replace(campaign, validation=replace(campaign.validation, known=()))  # it changes
    validation = campaign.plan.spec.validation
    assert validation is not None and validation.group_records == 1
    model = build_model(campaign.plan.spec.model)
    table = pq.read_table("validation.parquet")
    names = np.array(table["person"].to_pylist())

    def counted(most: int) -> np.ndarray:
        groups = measured_owners(campaign.validation, "person", most)
        charged = replace(validation, group_records=most, records=groups.rows.size)
        measured = phase_measuring._records(campaign, charged)
        assert measured.owners is not None and np.bincount(measured.owners).max() == most
        guesses = probabilities(model, measured.inputs, physical_batch=64)
        return confusion_counts(guesses, measured.labels.numpy())

    before = {most: counted(most) for most in (1, 2, 4)}
    whose = max(set(names), key=list(names).count)
    for label in range(3):
        features = np.array(table["features"].to_pylist(), np.float32)
        labels = np.array(table["label"].to_pylist())
        features[names == whose] = 1e4 * (label + 1)
        labels[names == whose] = label
        columns = {
            "features": pa.FixedSizeListArray.from_arrays(
                pa.array(features.ravel()), features.shape[1]
            ),
            "label": pa.array(labels),
        }
        changed = table
        for name, column in columns.items():
            changed = changed.set_column(changed.schema.get_field_index(name), name, column)
        pq.write_table(changed, "validation.parquet")
        for most, counts in before.items():
            moved = ((counted(most) - counts) ** 2).sum()
            assert moved <= 2 * most**2


def test_a_person_in_both_files_is_refused(held_out, small):
    names = pq.read_table("validation.parquet")["person"].to_pylist()
    with_persons("validation.parquet", ["person-7", *names[1:]])
    config = small(**grouped("visible", **OPEN_DRAW, validation=PROTECTED))
    with pytest.raises(DataError, check=nothing_released) as refused:
        dpal.plan(config)
    assert "data.group_column" not in str(refused.value) and "'person'" in str(refused.value)
    # Figures on public records promise nothing, and need no persons.
    assert dpal.plan(small(**grouped("visible", **OPEN_DRAW))).summary()["unit"] == "group"


def test_a_protected_validation_set_needs_to_say_whose_its_records_are(persons, small):
    with pytest.raises(DataError, check=nothing_released) as refused:
        dpal.plan(small(**grouped("visible", **OPEN_DRAW, validation=PROTECTED)))
    assert "data.group_column" in str(refused.value)
    with pytest.raises(ConfigError) as without_groups:
        small(validation=PROTECTED)
    assert "validation.group_records" in str(without_groups.value)


def test_a_file_that_changed_since_the_plan_is_not_measured(held_out, small):
    campaign = prepare(small(**grouped("visible", **OPEN_DRAW, validation=PROTECTED)))
    validation = campaign.plan.spec.validation
    pq.write_table(pq.read_table("validation.parquet").slice(0, 200), "validation.parquet")
    assert validation is not None
    with pytest.raises(DataError):
        phase_measuring._records(campaign, validation)
