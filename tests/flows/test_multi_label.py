"""Campaigns on records that have several labels each, on a real Prefect server."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpal.data.labeling_state import labels_of
from dpal.files.artifacts import CampaignFolder
from dpal.labels import Task
from dpal.runs.released_phase import reached
from dpal.training.metrics import evaluation_metrics
from tests.conftest import flows_at, shared_file, write_config
from tests.flows.calling import call, sentence

pytestmark = [pytest.mark.slow, pytest.mark.shared_data, pytest.mark.usefixtures("orchestrated")]

FIGURES = ["micro_f1", "macro_f1", "subset_accuracy", "macro_auc"]


def true_labels(path: Path) -> dict[str, tuple[int, ...]]:
    table = pq.read_table(path, columns=["id", "label"])
    return {
        name: tuple(label)
        for name, label in zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True)
    }


@pytest.fixture(scope="module")
def yeast(prefect_api, tmp_path_factory):
    """A hidden selection by entropy; once for the tests of this module."""
    place, path = tmp_path_factory.mktemp("yeast"), str(shared_file("yeast.parquet"))
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(place)
        write_config(
            place / "yeast.yaml",
            name="yeast",
            data={"pool": path, "validation": path},
            privacy={"epsilon": 8},
            acquisition="entropy",
            schedule={"initial": 900, "queries": [400], "batch_size": 1000, "epochs_per_phase": 15},
            training={"optimizer": "sgd", "learning_rate": 150, "momentum": 0.0,
                      "max_grad_norm": 0.2},
        )  # fmt: skip
        done = call("run", "yeast.yaml")
        assert done.returncode == 0, done
        yield place, done


@pytest.fixture(autouse=True)
def _there(request, monkeypatch):
    if "yeast" in request.fixturenames:
        monkeypatch.chdir(request.getfixturevalue("yeast")[0])


def test_a_campaign_learns_several_labels(yeast):
    """Frequencies alone give micro-F1 0.478; five rehearsals of this gave 0.627 to 0.643."""
    place, done = yeast
    folder = CampaignFolder(place / "artifacts" / "yeast")
    phases = folder.finished_phases()
    names = [name for name in phases[-1] if name.startswith("validation_")]
    expected = (*FIGURES, "records", "standard_error")
    assert names == [f"validation_{name}" for name in expected]
    assert phases[-1]["validation_micro_f1"] > 0.58
    assert phases[-1]["campaign_epsilon"] <= 8
    assert "Micro-F1 by phase" in done.stdout
    assert "validation macro AUC" in folder.report.read_text()
    assert "% micro-F1" in call("status").stdout
    truth = true_labels(shared_file("yeast.parquet"))
    bought = labels_of(folder.phase(1).pool)
    assert 900 <= len(bought) <= 1300  # 900 where the gate let nobody pass, as it may
    assert all(truth[name] == label for name, label in bought.items())


def test_it_is_verified_like_any_other(yeast):
    folder = str(yeast[0] / "artifacts" / "yeast")
    checked = call("verify", folder, "--ledger", folder, "--key", "own")
    assert checked.returncode == 0, checked
    assert call("ledger", "verify", folder).returncode == 0


def test_the_served_model_names_labels(yeast):
    place, _ = yeast
    mlflow.set_tracking_uri(f"sqlite:///{place / 'artifacts' / 'mlflow.sqlite'}")
    (run,) = mlflow.search_runs(
        experiment_names=["dpal"], filter_string="tags.`dpal.phase` = 'all'", output_format="list"
    )
    metrics = reached(CampaignFolder(place / "artifacts" / "yeast"))
    for name in FIGURES:
        assert run.data.metrics[f"validation_{name}"] == metrics[f"validation_{name}"]
    model = mlflow.pyfunc.load_model(f"runs:/{run.info.run_id}/model")
    table = pq.read_table(shared_file("yeast.parquet")).to_pandas()
    table = table[table["split"] == "test"]
    answers = model.predict(pd.DataFrame({"features": list(table["features"])}))
    assert list(answers.columns) == ["labels", "label_names", "probabilities"]
    guesses, labels = np.stack(list(answers["probabilities"])), np.stack(list(table["label"]))
    again = evaluation_metrics(Task.MULTI_LABEL, guesses, labels)
    assert again == pytest.approx({name: metrics[f"validation_{name}"] for name in FIGURES})
    stored = pq.read_schema(shared_file("yeast.parquet")).metadata[b"class_names"]
    class_names = json.loads(stored)
    for row, chosen in zip(answers.itertuples(), guesses > 0.5, strict=True):
        assert row.labels == np.flatnonzero(chosen).tolist()
        assert row.label_names == [class_names[number] for number in row.labels]


def test_margin_is_refused_at_the_door(yeast):
    refused = call("plan", "yeast.yaml", "--set", "acquisition=margin", "--set", "name=other")
    assert "margin is not" in sentence(refused)


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """Half of the training rows now, half of them later; and a validation set."""
    monkeypatch.chdir(tmp_path)
    table = pq.read_table(shared_file("scene.parquet"))
    train = table.filter(np.array(table["split"].to_pylist()) == "train").drop_columns(["split"])
    test = table.filter(np.array(table["split"].to_pylist()) == "test").drop_columns(["split"])
    rows = np.random.default_rng(1).permutation(len(train))  # sorted by label as it comes
    (tmp_path / "pool").mkdir()
    pq.write_table(train.take(rows[:600]), tmp_path / "pool" / "january.parquet")
    pq.write_table(test, tmp_path / "validation.parquet")
    return tmp_path, train.take(rows[600:])


def test_people_label_and_a_later_campaign_goes_on(scene):
    """Files of answers, a registered data set, and a second campaign on old and new records."""
    place, later = scene
    settings: dict[str, Any] = {
        "data": {"pool": "pool", "validation": "validation.parquet", "dataset": "scene"},
        "schedule": {"initial": 200, "queries": [], "batch_size": 100, "epochs_per_phase": 4},
        "training": {"optimizer": "sgd", "learning_rate": 15, "max_grad_norm": 0.2},
        "acquisition": "random",
    }
    promise = {"epsilon": 4, "delta": 1e-4, "selection": "visible"}
    write_config(
        place / "first.yaml", name="first", labeler__kind="file", privacy=promise, **settings
    )
    done = [call("data", "register", "scene", "pool", "--epsilon", "8", "--delta", "1e-4")]
    done += [call("run", "first.yaml")]
    assert "paused: labels" in done[-1].stdout
    truth = true_labels(shared_file("scene.parquet"))
    stored = pq.read_schema(shared_file("scene.parquet")).metadata[b"class_names"]
    class_names = json.loads(stored)
    query = place / "artifacts/first/confidential/query/phase-0/query.csv"
    with query.open(newline="") as asked, (place / "labels.csv").open("w", newline="") as given:
        writer = csv.writer(given)
        writer.writerow(["id", "label"])
        for row in csv.DictReader(asked):
            names = [class_names[i] for i, one in enumerate(truth[row["id"]]) if one]
            writer.writerow([row["id"], "; ".join(names) or "none"])
    done += [call("label", "artifacts/first", "labels.csv")]
    first, second = (CampaignFolder(place / "artifacts" / name) for name in ("first", "second"))
    bought = labels_of(first.phase(0).pool)
    assert bought == {name: truth[name] for name in bought}
    assert len(bought) == 200
    pq.write_table(later, place / "pool" / "march.parquet")
    done += [call("data", "add", "scene", "pool")]
    settings |= {"start_from": "first", "acquisition": "entropy"}
    settings["schedule"] = {**settings["schedule"], "queries": [100]}
    write_config(place / "second.yaml", name="second", privacy=promise, **settings)
    done += [call("run", "second.yaml")]
    assert [one.returncode for one in done] == [0] * len(done), done[-1]
    assert labels_of(second.phase(0).pool) == bought
    assert len(labels_of(second.phase(1).pool)) == 300
    assert set(second.finished_phases()[-1]) >= {f"validation_{name}" for name in FIGURES}
    # A later campaign with other labels would have to forget what the first one learnt.
    table = pq.read_table(place / "validation.parquet")
    fewer = [sum(label) for label in table["label"].to_pylist()]
    column = table.schema.get_field_index("label")
    pq.write_table(table.set_column(column, "label", [fewer]), place / "validation.parquet")
    refused = call("run", "second.yaml", "--set", "name=third", "--set", "labeler.kind=file")
    assert "one kind" in sentence(refused)
