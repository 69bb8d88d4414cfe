"""Orders to train without noise: what they say, and what a worker refuses."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpal.config.pate import parse_pate
from dpal.errors import ConfigError, LedgerError, ParameterError
from dpal.files.artifacts import CONFIDENTIAL
from dpal.ledger.folder_lock import lock_folder
from dpal.runs import repeatable_training
from dpal.runs.ensemble_hold import hold_ensemble
from dpal.runs.host import Host, TrainingMonitor
from dpal.runs.prepare_ensemble import Ensemble, plan_ensemble
from dpal.runs.student import STUDENT
from dpal.runs.teachers import TEACHERS, deal_records, train_teachers
from tasks.training_pool import repeatable_order
from tasks.training_pool.repeatable_order import RepeatableOrder, following_repeatable_order, train
from tests.flows.voting import TEACHERS as VOTERS
from tests.flows.voting import settings, write_data, write_records


def planned(**sections: Any) -> Ensemble:
    values = settings("votes", runtime={"training_pool": "gpu"}, **sections)
    return plan_ensemble(parse_pate(values))


@pytest.fixture
def ensemble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ensemble:
    """Held teachers with their records dealt out, that leave training to the pool gpu."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    account = planned()
    with lock_folder(account.folder.root):
        hold_ensemble(account)
        deal_records(account)
    return account


def ordered(ensemble: Ensemble, training: Any = STUDENT) -> RepeatableOrder:
    """What the run's own process orders, after its way through the server."""
    order = repeatable_order._order(ensemble, training)
    ensemble.folder.root.mkdir(parents=True, exist_ok=True)
    (ensemble.folder.root / repeatable_order._ORDER).write_text(order.digest, encoding="utf-8")
    return RepeatableOrder.model_validate(json.loads(json.dumps(order.model_dump(mode="json"))))


def refused(order: RepeatableOrder, error: type[Exception]) -> str:
    with pytest.raises(error) as no, following_repeatable_order(order):
        pass
    return str(no.value)


def test_a_worker_reads_what_was_ordered(ensemble):
    order = ordered(ensemble)
    config = order.settings()
    assert config.runtime.training_pool is None  # it trains itself
    assert config.runtime.artifacts == Path("artifacts").resolve()
    with following_repeatable_order(order) as (run, training):
        assert (run.name, run.plan.digest) == (ensemble.name, ensemble.plan.digest)
        assert training is STUDENT


def test_only_what_the_run_itself_ordered_is_trained(ensemble):
    """Whoever may start flows may write any order, and nothing into the run's folder."""
    order = ordered(ensemble)
    forged = order.model_copy(update={"training": TEACHERS.name})
    assert "did not order" in refused(forged, LedgerError)
    (ensemble.folder.root / repeatable_order._ORDER).unlink()
    assert "did not order" in refused(order, LedgerError)


def test_a_training_of_another_kind_is_refused(ensemble):
    order = ordered(ensemble)
    refused(order.model_copy(update={"training": "fine-tuning"}), ConfigError)


def test_a_plan_that_is_another_one_here_is_refused(ensemble, monkeypatch):
    real = repeatable_order._order
    monkeypatch.setattr(
        repeatable_order, "_order", lambda *of: real(*of).model_copy(update={"plan": "0" * 64})
    )
    assert "0" * 12 in refused(ordered(ensemble), LedgerError)


def test_teachers_learn_of_the_records_that_are_held_and_no_others(ensemble, tmp_path):
    """A plan does not know its records; the ledger does."""
    write_records(tmp_path / "other.parquet", 240, seed=9, prefix="secret")
    other = planned(data={"pool": "other.parquet", "validation": "validation.parquet"})
    assert other.plan.digest == ensemble.plan.digest
    assert "not the one" in refused(ordered(other, TEACHERS), LedgerError)
    # The same settings, and a machine on which the file is another one.
    (tmp_path / "other.parquet").replace(tmp_path / "private.parquet")
    refused(ordered(ensemble, TEACHERS), LedgerError)
    assert not any(path.exists() for path in TEACHERS.makes(ensemble))


def test_teachers_that_nobody_holds_are_not_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    refused(ordered(planned(), TEACHERS), LedgerError)
    assert not Path("artifacts/ledger.sqlite").exists()  # nor is a ledger made by asking


def test_a_machine_without_the_device_says_so(ensemble):
    runtime = ensemble.runtime.model_copy(update={"device": "cuda:63"})
    config = ensemble.config.model_copy(update={"runtime": runtime})
    with (
        pytest.raises(ParameterError, match="cuda:63"),
        following_repeatable_order(ordered(replace(ensemble, config=config))),
    ):
        pass


def test_what_a_worker_trains_is_there_for_the_process_that_leads(ensemble):
    with following_repeatable_order(ordered(ensemble, TEACHERS)) as (run, training):
        training.train(run)
    assert TEACHERS.is_done(ensemble)
    places = {path.relative_to(ensemble.folder.root).parts[0] for path in TEACHERS.makes(ensemble)}
    assert places == {CONFIDENTIAL}


def test_nobody_is_told_how_many_teachers_are_ready(ensemble, monkeypatch):
    """How long one takes says how many records it has."""
    told: list[object] = []

    class Listening(TrainingMonitor):
        def begin(self, text: str) -> None:
            told.append(text)

        def show(self, progress: float) -> None:
            told.append(progress)

    monkeypatch.setattr(Host, "watch_training", lambda *_: nullcontext(Listening()))
    monkeypatch.setattr(repeatable_training, "host", Host)
    train_teachers(ensemble)
    TEACHERS.makes(ensemble)[0].unlink()  # as if killed before the last one was ready
    train_teachers(ensemble)
    assert told == [f"teachers: {VOTERS} models"] * 2


def goes_where(ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch) -> str:
    went: list[str] = []
    monkeypatch.setattr(repeatable_order, "train_here", lambda *_: went.append("here"))
    monkeypatch.setattr(
        repeatable_order, "train_repeatable_on_pool", lambda *_: went.append("pool")
    )
    train(ensemble, STUDENT)
    (where,) = went
    return where


def test_without_a_shared_folder_the_process_that_leads_trains(ensemble, monkeypatch):
    runtime = ensemble.runtime.model_copy(update={"store": "s3://bucket/dpal"})
    stored = replace(ensemble, config=ensemble.config.model_copy(update={"runtime": runtime}))
    assert goes_where(ensemble, monkeypatch) == "pool"
    assert goes_where(stored, monkeypatch) == "here"


def test_what_is_trained_is_not_ordered(ensemble, monkeypatch):
    ensemble.files.model.parent.mkdir(parents=True, exist_ok=True)
    ensemble.files.model.write_bytes(b"trained")
    assert goes_where(ensemble, monkeypatch) == "here"  # which finds nothing to do
