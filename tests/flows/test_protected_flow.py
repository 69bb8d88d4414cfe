"""A campaign with a protected validation set, in a flow: what Prefect and MLflow hold of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

from dpal.config.campaign import parse_config
from dpal.data.labeling_state import load_all, read_ids
from dpal.files.artifacts import CampaignFolder
from dpal.labels import Task
from dpal.runs.open_sources import open_validation
from dpal.runs.phase_training import model_with
from dpal.runs.prepare_campaign import prepare
from dpal.runs.search_choice import recorded_search, search_choice
from dpal.training.evaluation import probabilities
from dpal.training.noisy_metrics import confusion_counts
from flows.campaign import run_campaign
from tests.conftest import flows_at, small_values, write_blobs
from tests.flows.calling import call, sentence
from tests.flows.leaks import files_below, naming
from tests.flows.test_campaign import last_flow_run, runs_of
from tests.runs.test_protected_validation import RECORDS, mislabel

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("orchestrated")]

SETTINGS: dict[str, Any] = {
    "name": "guarded",
    "validation": {"protected": True, "epsilon": 1.0},
    "acquisition": "random",
    "schedule__queries": [40],
    "search": {"trials": [{"learning_rate": 1e-3}]},
}


@pytest.fixture(scope="module")
def place(prefect_api, tmp_path_factory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("guarded")
    write_blobs(root / "pool.parquet", 600, seed=1)
    mislabel(write_blobs(root / "validation.parquet", RECORDS, seed=2, prefix="held"))
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(root)
        run_campaign(parse_config(small_values(**SETTINGS)))
    yield root


@pytest.fixture
def phases(place, monkeypatch) -> list[dict[str, Any]]:
    monkeypatch.chdir(place)
    return CampaignFolder(Path("artifacts/guarded")).finished_phases()


def exact(phases: list[dict[str, Any]], *, counts: bool = False) -> list[str]:
    """Accuracies of phases and trials without noise, as a program would write them.

    Those that are released ones by chance are left out.

    Args:
      phases: finished ones.
      counts: whether to add the confusion counts that they are made of, as JSON and as Python.
    """
    campaign = prepare(parse_config(small_values(**SETTINGS)))
    inputs, labels = load_all(campaign.validation)
    search = search_choice(campaign)
    assert search is not None and len(search.reached) == 2
    measured = [*phases, *search.reached]
    told, names = [], ("validation_accuracy", "validation_majority")
    released = {phase[name] for phase in measured for name in names if name in phase}
    tried = [campaign.folder.phase(0).trial(number).weights for number in (1, 2)]
    trained = [campaign.folder.phase(number).model for number in range(len(phases))]
    for weights in (*trained, *tried):
        model = model_with(campaign, weights)
        guesses = probabilities(model, inputs, physical_batch=256, task=Task.SINGLE_LABEL)
        counted = confusion_counts(guesses, labels.numpy())
        if counts:
            told += [
                json.dumps(counted.tolist()),
                json.dumps(counted.tolist(), separators=(",", ":")),
            ]
        share = float(np.trace(counted)) / RECORDS
        if (
            share not in released
        ):  # by chance: noise leaves one in thirty as it is, and models may say one class
            told.append(repr(share))
    return told


def test_mlflow_has_released_figures_and_nothing_of_the_records(place, phases):
    parent, children = runs_of(place)
    assert parent.inputs.dataset_inputs == [], "ids and labels of these records stay"
    metrics = parent.data.metrics
    assert metrics["epsilon_pld/cohort_validation"] <= 1.0
    assert metrics["validation_low"] <= metrics["validation_accuracy"] <= metrics["validation_high"]
    for child, phase in zip(children, phases, strict=True):
        for key in ("validation_accuracy", "validation_low", "validation_high"):
            assert child.data.metrics[key] == phase[key]
    search = recorded_search(CampaignFolder(Path("artifacts/guarded")))
    assert search is not None
    assert parent.data.params["learning_rate"] == "0.5, 0.001"
    chosen = f"{search['settings'][search['best'] - 1]['learning_rate']:g}"
    assert {child.data.params["learning_rate"] for child in children} == {chosen}
    secrets = [*exact(phases), *held_out()]
    for run in (parent, *children):
        told = json.dumps([dict(run.data.metrics), dict(run.data.params), dict(run.data.tags)])
        assert not [secret for secret in secrets if secret in told]
        kept = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id))
        for path in kept.rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            assert not [secret for secret in secrets if secret.encode() in content], path


def test_prefect_shows_released_figures_and_nothing_else(place, phases):
    run, artifacts = last_flow_run("guarded")
    with get_client(sync_client=True) as client:
        logs = client.read_logs(
            LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id])), limit=200, offset=0
        )
    lines = "\n".join(log.message for log in logs)
    shown = lines + "\n".join(str(artifact.data) for artifact in artifacts.values())
    last = phases[-1]
    assert f"{100 * last['validation_low']:.2f} %" in lines
    told = {f"{100 * phase['validation_accuracy']:.2f} %" for phase in phases}
    told |= {f"{100 * phase[f'validation_{end}']:.2f} %" for phase in phases
             for end in ("low", "high")}  # fmt: skip
    tried = (recorded_search(CampaignFolder(Path("artifacts/guarded"))) or {})["trials"]
    for trial in tried:
        assert f"{100 * trial['validation_accuracy']:.2f} %" in lines
        told |= {f"{100 * trial[f'validation_{end}']:.2f} %" for end in ("accuracy", "low", "high")}
    for secret in exact(phases):
        if (percent := f"{100 * float(secret):.2f} %") not in told:
            assert percent not in shown
    assert "held-0" not in shown


def test_nothing_that_stays_behind_holds_an_exact_figure(place, phases, prefect_home):
    """Every file of the campaign, of MLflow and of Prefect: databases, results, checkpoints."""
    left = [
        path
        for path in files_below(place, prefect_home)
        if path.is_file() and "confidential" not in path.parts
    ]
    private = {place / "validation.parquet", place / "pool.parquet"}
    names = {path.suffix for path in left} | {path.name for path in left}
    assert {"manifest.json", "report.md", "report.html", "ledger.sqlite", ".safetensors"} <= names
    databases = [path for path in left if path.read_bytes().startswith(b"SQLite format 3")]
    assert len(databases) >= 3  # the ledger, MLflow's and Prefect's
    secrets = [*exact(phases, counts=True), *held_out()]
    assert len(secrets) > RECORDS + 5
    assert naming(secrets, set(left) - private) == set()
    # What is looked for is found where it is.
    assert naming(secrets, private) == {place / "validation.parquet"}
    told = [repr(phase["validation_accuracy"]) for phase in phases]
    assert naming(told, databases)


def held_out() -> list[str]:
    return read_ids(open_validation(parse_config(small_values(**SETTINGS))))


def test_commands_say_what_it_costs_and_how_precise_it_is(place, monkeypatch):
    monkeypatch.chdir(place)
    Path("guarded.yaml").write_text(json.dumps(small_values(**SETTINGS)), encoding="utf-8")
    planned = " ".join(call("plan", "guarded.yaml").stdout.split())
    assert "accuracy ±" in planned
    assert f"{RECORDS} records" in planned
    told = json.loads(call("plan", "guarded.yaml", "--json").stdout)["validation"]
    assert told["records"] == RECORDS and 0.99 < told["epsilon"] <= 1
    explained = " ".join(call("plan", "guarded.yaml", "--explain").stdout.split())
    assert "figures cost" in explained
    done = call("verify", "artifacts/guarded", "--ledger", "artifacts/guarded", "--key", "own")
    assert done.returncode == 0, done
    assert "validation set" in call("ledger", "show", "artifacts/guarded").stdout
    swept = call("run", "guarded.yaml", "--sweep", "privacy.epsilon=1,2")
    assert "protected" in sentence(swept)
    assert "public" in sentence(call("rehearse", "guarded.yaml", "--public"))
