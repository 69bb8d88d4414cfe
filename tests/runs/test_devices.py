"""Where models run: a device that settings name is there before anything is held."""

from __future__ import annotations

from typing import Any

import pytest

import dpal
from dpal.config.runtime import RuntimeConfig
from dpal.errors import ParameterError
from dpal.runs.devices import require_device
from tests.conftest import having, small_values, write_blobs
from tests.flows import improving, voting

MISSING = {"device": "cuda:99"}
NEAR = {"method": "near_private", "labels": 60, "candidates": 150, "components": 3}
DATA = {"pool": "pool.parquet", "validation": "validation.parquet"}
NOT_HERE = having(parameter="runtime.device", released=False)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    "values",
    [
        small_values(name="asked", runtime=MISSING),
        voting.settings("asked", data=DATA, voting={"queries": 30}, runtime=MISSING),
        improving.settings("asked", choice=NEAR, runtime=MISSING),
    ],
    ids=["campaign", "pate", "public"],
)
def test_a_run_without_its_device_is_refused_before_anything_is_held(
    values: dict[str, Any], tmp_path
):
    write_blobs(tmp_path / "public.parquet", 400, seed=3, prefix="p")
    with pytest.raises(ParameterError, check=NOT_HERE):
        dpal.run(dpal.settings(values))
    assert voting.entries("asked") == []


@pytest.mark.usefixtures("workplace")
def test_an_improvement_of_a_finished_start_is_refused_likewise(tmp_path):
    write_blobs(tmp_path / "public.parquet", 400, seed=3, prefix="p")
    dpal.run(dpal.settings(small_values(name="begun", schedule__queries=[])))
    begun, privacy = {"campaign": "begun"}, {"epsilon": 12.0}
    values = improving.settings("asked", choice=NEAR, start=begun, privacy=privacy, runtime=MISSING)
    with pytest.raises(ParameterError, check=NOT_HERE):
        dpal.run(dpal.settings(values))
    assert voting.entries("asked") == []


def test_who_leaves_training_to_a_work_pool_needs_no_device():
    runtime = RuntimeConfig(**MISSING, training_pool="gpu")
    require_device(runtime)
    with pytest.raises(ParameterError, check=NOT_HERE):
        require_device(runtime, leads=False)
