"""Campaigns that fit a head: in every way to select, killed, edited and predicted with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

import dpal
from dpal.accounting.events import NoisyStatistics
from dpal.audit.audit_campaign_plan import Effort
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.evidence import LedgerEvidence, evidence_from
from dpal.certificate.fitted_head_checks import unsound_fits
from dpal.certificate.kinds.campaign import _uncovered
from dpal.certificate.sentences import STATEMENTS
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.data.importing.settings import ImportSettings
from dpal.errors import LedgerError, ParameterError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import leading_process, lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_json import release_from
from dpal.mechanisms.head_statistics import HeadStatistics
from dpal.runs.audit_by_attacks import audit_campaign
from dpal.runs.phase_training import start_over
from dpal.runs.predict import open_model, predict
from dpal.runs.prepare_campaign import prepare
from tests.conftest import CLASSES, WIDTH, small_values, write_blobs
from tests.variants import quick_and_slow

LEDGER = Path("artifacts/ledger.sqlite")
AS_IT_IS = ImportSettings()
PROTECTED: dict[str, Any] = {"protected": True, "epsilon": 4.0}
WAYS: dict[str, dict[str, Any]] = {
    "visible": {},
    "hidden": {"privacy": {"selection": "hidden", "epsilon": 20}, "schedule__queries": [200]},
    "drawn": {"privacy": {"selection": "hidden"}, "acquisition": "random"},
    "replaced": {"privacy": {"adjacency": "replace_one"}, "acquisition": "random"},
    "protected": {"acquisition": "random", "validation": PROTECTED},
}


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def settings(method: str = "least_squares", **changes: Any) -> CampaignConfig:
    return parse_config(small_values(training__method=method, **changes))


def reserved() -> list[str | None]:
    with closing(LedgerStore(LEDGER)) as store:
        return [e.release for e in store.verified() if e.kind is EntryKind.RESERVE]


FITS = list(product(("least_squares", "prototypes"), WAYS))
QUICK = [("least_squares", "visible")]


@pytest.mark.parametrize(("method", "way"), quick_and_slow(QUICK, FITS))
def test_a_campaign_fits_certifies_and_predicts(method, way, workplace):
    folder = dpal.run(settings(method, **WAYS[way]))
    assert not any_failed(dpal.verify(folder, ledger=folder.ledger))
    certificate = json.loads(folder.certificate.read_text(encoding="utf-8"))
    events = {one["cohort"]: one["events"] for one in certificate["cohorts"]}
    for cohort in ("0", "1"):
        fits = [one for one in events[cohort] if one["mechanism"] == "noisy_statistics"]
        assert [one["release"] for one in fits] == [f"phase-{cohort}/training"]
    told = certificate["head"]
    assert told["method"] == method
    statistics = HeadStatistics(
        features=WIDTH,
        classes=CLASSES,
        task=prepare(settings(method, **WAYS[way])).plan.spec.model.task,
        moments=method == "least_squares",
    )
    assert told["most_numbers"] == statistics.coordinates
    assert certificate["assumptions"] != STATEMENTS["assumptions"]
    predict(open_model(folder.root), Path("validation.parquet"), Path("said.parquet"), AS_IT_IS)
    said = pq.read_table("said.parquet")["label"].to_pylist()
    truth = pq.read_table("validation.parquet")["label"].to_pylist()
    assert np.mean([str(one) == str(other) for one, other in zip(said, truth, strict=True)]) > 0.8


def test_a_head_is_a_plain_linear_model(workplace):
    folder = dpal.run(settings(acquisition="random", schedule__queries=[]))
    weights = load_file(folder.phase(0).model)
    assert {name: tuple(value.shape) for name, value in weights.items()} == {
        "1.weight": (CLASSES, WIDTH), "1.bias": (CLASSES,),
    }  # fmt: skip


MOMENTS = ("before noise", "after noise", "after writing")


@pytest.mark.parametrize("moment", quick_and_slow(["after noise", "after writing"], MOMENTS))
def test_killed_anywhere_it_releases_once(workplace, monkeypatch, moment):
    """Whoever dies before both files are written has released nothing, and draws anew."""
    config = settings(acquisition="random", schedule__queries=[])
    real = HeadStatistics.release

    def dies(self, *arguments, **options):
        if moment == "after noise":
            real(self, *arguments, **options)
        raise Killed

    def dies_later(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if moment == "after writing":
            patch.setattr("dpal.ledger.training_releases.shutil.rmtree", dies_later)
        else:
            patch.setattr(HeadStatistics, "release", dies)
        for _ in range(1 if moment == "after writing" else 2):
            with pytest.raises(Killed):
                dpal.run(config)
    model = CampaignFolder(Path("artifacts/small")).phase(0).model
    written = model.read_bytes() if moment == "after writing" else None
    assert model.exists() is (written is not None)
    folder = dpal.run(config)
    assert written in (None, model.read_bytes())
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))
    names = reserved()
    assert len(names) == len(set(names)) and "phase-0/training" in names


def test_a_finished_fit_is_never_drawn_again(workplace):
    config = settings(acquisition="random", schedule__queries=[])
    folder = dpal.run(config)
    before = folder.phase(0).model.read_bytes()
    assert dpal.run(config).phase(0).model.read_bytes() == before
    campaign = prepare(config)
    with leading_process(folder.root), lock_folder(folder.root), pytest.raises(LedgerError):
        start_over(campaign, ["phase-0/training"])


@pytest.mark.slow
def test_the_second_phase_reads_what_the_first_released_and_not_its_records(workplace, monkeypatch):
    config = settings(acquisition="random")
    counts: list[int] = []
    real = HeadStatistics.of

    def watched(self, batches):
        seen = list(batches)
        counts.append(sum(len(features) for features, *_ in seen))
        return real(self, seen)

    monkeypatch.setattr(HeadStatistics, "of", watched)
    dpal.run(config)
    assert counts == [100, 40, 40]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerEvidence]:
    """What a certificate of a fitted campaign says."""
    root = tmp_path_factory.mktemp("fitted")
    write_blobs(root / "pool.parquet", 600, seed=1)
    write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        folder = dpal.run(settings())
        yield evidence_from(json.loads(folder.certificate.read_text(encoding="utf-8")))


@pytest.mark.slow
@pytest.mark.parametrize("edit", ["none", "more noise", "other cohort", "left out", "as steps"])
def test_what_a_fit_costs_cannot_be_left_out_of_a_certificate(finished, edit):
    """The plan fits each cohort once; held releases have to charge each of them in full."""
    records = json.loads(json.dumps(finished.hold.body["releases"]))
    record = next(one for one in records if one["release"] == "phase-1/training")
    (charge,) = record["charges"]
    assert charge["event"]["mechanism"] == NoisyStatistics.mechanism
    if edit == "more noise":
        charge["event"]["noise_multiplier"] *= 1.01
    elif edit == "other cohort":
        charge["cohorts"] = ["2"]
    elif edit == "left out":
        records.remove(record)
    elif edit == "as steps":  # one step of DP-SGD is no sum over two moments
        charge["event"] = {
            "mechanism": "poisson_subsampled_gaussian", "steps": 1, "sample_rate": 1.0,
            "noise_multiplier": charge["event"]["noise_multiplier"],
        }  # fmt: skip
    held = [release_from(one) for one in records]
    faults = list(_uncovered(finished.plan["phases"][1], finished.plan, held, finished))
    assert bool(faults) is (edit != "none")


@pytest.mark.parametrize(
    "edit",
    [{"statistics": False}, {"steps": 2}, {"sample_rate_old": 0.5}, {"sample_rate_new": 0.5}],
)
def test_a_plan_that_fits_otherwise_than_it_says_is_a_fault(finished, edit):
    plan = json.loads(json.dumps(finished.plan))
    assert not list(unsound_fits(plan))
    plan["phases"][1]["training"] |= edit
    assert list(unsound_fits(plan))


def test_an_audit_says_that_there_are_no_steps_to_attack(workplace):
    with pytest.raises(ParameterError):
        audit_campaign(prepare(settings()), Effort(canaries=10, most_steps=1))


@pytest.mark.slow
def test_several_labels_some_of_them_unknown_are_fitted(workplace):
    rng = np.random.default_rng(0)
    for name, rows in (("pool", 800), ("validation", 300)):
        features = rng.normal(size=(rows, WIDTH)).astype(np.float32)
        labels = (features[:, :3] + rng.normal(size=(rows, 3)) / 4 > 0).astype(np.int8)
        labels[rng.random(labels.shape) < 0.2] = -1
        table = pa.table(
            {
                "id": [f"{name}-{row}" for row in range(rows)],
                "features": pa.array(list(features)),
                "label": pa.array(labels.tolist(), type=pa.list_(pa.int8())),
            }
        )
        pq.write_table(table, f"{name}.parquet")
    folder = dpal.run(settings(acquisition="random", schedule__initial=400))
    metrics = json.loads((folder.root / "phase-2" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["validation_micro_f1"] > 0.8
    with pytest.raises(ParameterError):
        prepare(settings("prototypes", name="others"))
