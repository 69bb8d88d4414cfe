"""What an improvement cannot be is refused when it is planned."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.config.campaign import parse_config
from dpal.config.improvement import parse_public
from dpal.config.pate import parse_pate
from dpal.errors import DataError, LabelError, ParameterError
from dpal.runs.execute import execute_run
from dpal.runs.improvement_context import Improving
from dpal.runs.prepare_ensemble import plan_ensemble
from dpal.runs.prepare_improvement import plan_improvement
from tests.conftest import having, nothing_released, small_values, write_blobs
from tests.flows.improving import settings
from tests.flows.voting import LABELS, write_data, write_records
from tests.flows.voting import settings as voting_settings

SIDE = 8
CHOICE = {"labels": 60, "candidates": 150, "components": 3}


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_blobs(tmp_path / "pool.parquet", 600, seed=1)
    write_blobs(tmp_path / "validation.parquet", 300, seed=2, prefix="v")
    write_blobs(tmp_path / "public.parquet", 400, seed=3, prefix="p")


def planned(**sections: Any) -> Improving:
    """An improvement by a free choice, whose start is still to be trained."""
    return plan_improvement(parse_public(settings("better", **sections)))


def fine_tuning(shift: int) -> dict[str, Any]:
    return {"epochs": 1, "learning_rate": 0.01, "batch_size": 16, "shift": shift}


def draw_pictures() -> None:
    """Gray noise in place of the features of all records."""
    rng = np.random.default_rng(4)
    for file in ("pool.parquet", "validation.parquet", "public.parquet"):
        records, pictures = pq.read_table(file), []
        for _ in range(records.num_rows):
            stream = io.BytesIO()
            gray = rng.integers(256, size=(SIDE, SIDE), dtype=np.uint8)
            Image.fromarray(gray).save(stream, "PNG")
            pictures.append(stream.getvalue())
        column = records.schema.get_field_index("features")
        pq.write_table(records.set_column(column, "image", pa.array(pictures)), file)


def several_labels() -> None:
    """Records that may have none of the labels, one or all."""
    for number, file in enumerate(("pool.parquet", "validation.parquet", "public.parquet")):
        write_records(Path(file), 400, seed=number, prefix=f"file-{number}")


def name_classes(file: str, names: list[str]) -> None:
    records = pq.read_table(file)
    own = {**(records.schema.metadata or {}), b"class_names": json.dumps(names).encode()}
    pq.write_table(records.replace_schema_metadata(own), file)


def test_classes_of_public_records_have_the_same_order() -> None:
    names = ["cat", "dog", "fox"]
    for file in ("pool.parquet", "validation.parquet", "public.parquet"):
        name_classes(file, names)
    planned()
    name_classes("public.parquet", names[::-1])
    with pytest.raises(DataError, match=r"public\.parquet"):
        planned()


def test_labels_that_teachers_give_have_the_same_order() -> None:
    write_data(Path())
    config = parse_pate(voting_settings("votes"))
    names = [f"label {number}" for number in range(LABELS)]
    for file in ("private.parquet", "validation.parquet", "public.parquet"):
        name_classes(file, names)
    plan_ensemble(config)
    name_classes("public.parquet", names[::-1])
    with pytest.raises(DataError, match=r"public\.parquet"):
        plan_ensemble(config)


def test_features_are_not_moved() -> None:
    with pytest.raises(ParameterError, check=having(parameter="fine_tuning.shift")):
        planned(fine_tuning=fine_tuning(1))
    planned(fine_tuning=fine_tuning(0))


def test_pictures_are_not_moved_out_of_sight() -> None:
    draw_pictures()
    with pytest.raises(ParameterError, check=having(parameter="fine_tuning.shift")):
        planned(fine_tuning=fine_tuning(SIDE))
    planned(fine_tuning=fine_tuning(SIDE - 1))


@pytest.mark.parametrize(
    ("choice", "setting"),
    [
        ({"method": "uncertain_margin"}, "choice.method"),
        ({"method": "near_private", "uncertainty": "margin"}, "choice.uncertainty"),
    ],
)
def test_several_labels_of_a_record_are_not_ranked_by_margin(
    choice: dict[str, str], setting: str
) -> None:
    several_labels()
    with pytest.raises(ParameterError, check=having(parameter=setting, released=False)):
        planned(choice={**CHOICE, **choice})
    planned(choice={**CHOICE, "method": "uncertain_entropy", "uncertainty": "margin"})


def test_teachers_that_are_not_there_are_missed_before_anything_is_held() -> None:
    with pytest.raises(LabelError, check=nothing_released):
        planned(labeler={"kind": "teachers", "teachers": "nobody"})


@pytest.mark.slow
def test_teachers_are_asked_no_more_than_they_have_blocks_for() -> None:
    write_data(Path())
    votes = voting_settings("votes", voting={"queries": 30, "blocks": 1, "block_size": 20})
    execute_run(parse_pate(votes))
    labeled_by_votes = {
        "data": {"pool": "site.parquet", "validation": "validation.parquet"},
        "labeler": {"kind": "teachers", "teachers": "votes"},
    }
    choice = {"method": "random", "labels": 20}
    planned(**labeled_by_votes, choice=choice)
    with pytest.raises(ParameterError, check=nothing_released):
        planned(**labeled_by_votes, choice={**choice, "labels": 21})


def test_the_delta_of_a_published_start_is_not_taken_over() -> None:
    """By privacy.profile paper it is one over the labels, which are fewer than the records."""
    published = small_values(name="begun", schedule__queries=[], privacy__profile="paper")
    execute_run(parse_config(published))
    start = {"campaign": "begun"}
    with pytest.raises(ParameterError, check=having(parameter="privacy.delta", released=False)):
        planned(start=start, privacy={"epsilon": 40.0})
    assert planned(start=start, privacy={"epsilon": 40.0, "delta": 1e-4}).spec.target.delta == 1e-4
