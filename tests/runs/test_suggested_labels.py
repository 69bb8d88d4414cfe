"""People see what the released model says of a record: the same that it predicts, and no more."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

import dpal
from dpal.config.campaign import parse_config
from dpal.config.runtime import RunConfig
from dpal.data.importing.settings import ImportSettings
from dpal.data.labeling_state import read_selection
from dpal.errors import ConfigError, LabelsPending
from dpal.files.artifacts import CampaignFolder
from dpal.labeling.label_form import make_form, read_form
from dpal.runs.labeling import deliver_labels
from dpal.runs.labeling_job import LabelingJob
from dpal.runs.predict import open_model, predict
from dpal.runs.suggested_labels import suggested_labels
from tests.conftest import CLASSES, small_values


def written(folder: Path, **overrides: Any) -> Path:
    file = folder / "people.yaml"
    values = small_values(labeler__kind="file", schedule__queries=[40], **overrides)
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return file


def answered(query: Path, labels: Mapping[str, int]) -> Path:
    """Filled in, whatever was suggested."""
    with query.open(encoding="utf-8", newline="") as stream:
        ids = [row["id"] for row in csv.DictReader(stream)]
    answers = query.parent / "answers.csv"
    with answers.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["id", "label"], *([name, labels[name]] for name in ids)])
    return answers


def waiting(settings: RunConfig) -> CampaignFolder:
    """Runs until people are asked."""
    with pytest.raises(LabelsPending):
        dpal.run(settings)
    return CampaignFolder(settings.runtime.artifacts / settings.name)


@pytest.fixture
def second_query(workplace):
    """A campaign that waits for the labels of its second query, the first that a model selected."""
    settings = dpal.settings(written(workplace, labeler__suggest=True))
    folder = waiting(settings)
    first = folder.phase(0).query / "query.csv"
    assert "suggested" not in first.read_text(encoding="utf-8").splitlines()[0], "no model yet"
    table = pq.read_table(LabelingJob.recorded(folder).pool.paths[0])
    truth = dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))
    deliver_labels(folder, answered(first, truth))
    return waiting(settings)


def test_suggestions_are_what_the_model_predicts_and_nobody_has_to_agree(second_query, tmp_path):
    folder, files = second_query, second_query.phase(1)
    pool = Path(str(LabelingJob.recorded(folder).pool.paths[0]))
    predict(open_model(folder.root), pool,
            tmp_path / "all.parquet", ImportSettings())  # fmt: skip
    table = pq.read_table(tmp_path / "all.parquet").to_pylist()
    predicted = {row["id"]: row["class_name"] for row in table}
    with (files.query / "query.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    ids = read_selection(files.selection)
    assert {row["id"]: row["suggested"] for row in rows} == {name: predicted[name] for name in ids}
    assert {row["label"] for row in rows} == {""} and all(row["suggested"] for row in rows)
    assert not set(rows[0]) & {"probability", "score"}
    deliver_labels(folder, answered(files.query / "query.csv", dict.fromkeys(ids, 1)))
    assert set(pq.read_table(files.labels)["label"].to_pylist()) == {1}


def test_a_form_is_filled_in_and_may_be_changed(second_query):
    job = LabelingJob.recorded(second_query)
    ids = read_selection(second_query.phase(1).selection)[:3]
    suggested = suggested_labels(job, ids)
    form = make_form(job.question, job.pool, ids, suggested)
    filled = {name: field["default"] for name, field in form.schema["properties"].items()}
    assert read_form(job.question, filled, ids) == suggested
    assert list(suggested) != [] and set(suggested.values()) <= set(range(CLASSES))
    plain = make_form(job.question, job.pool, ids)
    assert not any("default" in field for field in plain.schema["properties"].values())


def test_without_being_wanted_nothing_is_suggested(second_query):
    job = LabelingJob.recorded(second_query)
    labeler = job.config.labeler.model_copy(update={"suggest": False})
    plain = job.config.model_copy(update={"labeler": labeler})
    ids = read_selection(second_query.phase(1).selection)
    assert suggested_labels(LabelingJob(config=plain, pool=job.pool, classes=job.classes,
                                        class_names=job.class_names), ids) == {}  # fmt: skip


def test_who_asks_nobody_suggests_nothing():
    with pytest.raises(ConfigError):
        parse_config(small_values(labeler__kind="oracle", labeler__suggest=True))
