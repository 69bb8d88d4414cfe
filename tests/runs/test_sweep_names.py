"""Runs of sweeps and books are found again by the settings that decide them, in later versions."""

from __future__ import annotations

from typing import Any

import pytest

from dpal.canonical import digest
from dpal.errors import ConfigError
from dpal.runs.sweeps import deciding, members, renamed
from tests.conftest import small_values

PUBLIC_VALUES: dict[str, Any] = {
    "kind": "public",
    "name": "improved",
    "data": {"pool": "pool.parquet", "validation": "validation.parquet"},
    "public": {"pool": "public.parquet"},
    "model": {"name": "logistic"},
    "start": {"epochs": 3, "batch_size": 50},
}
TEACHERS: dict[str, Any] = {
    "kind": "pate",
    "name": "taught",
    "data": {"pool": "pool.parquet", "validation": "validation.parquet"},
    "public": {"pool": "public.parquet"},
    "teachers": {"count": 10},
    "voting": {"queries": 50},
}


def of_0_2_0() -> dict[str, Any]:
    """Settings of a small campaign, as 0.2.0 read them: it had no declared validation records."""
    return {key: value for key, value in small_values().items() if key != "validation"}


@pytest.mark.parametrize(
    ("values", "name_by_0_2_0"),
    [(of_0_2_0(), "85821a66"), (PUBLIC_VALUES, "508e7d40"), (TEACHERS, "0957e256")],
    ids=["campaign", "public", "pate"],
)
def test_settings_that_came_later_rename_no_run(values: dict[str, Any], name_by_0_2_0: str) -> None:
    # Digests that the code of 0.2.0 made. Whoever adds a setting that changes them lists it in
    # `_LATER` of dpal/runs/sweeps.py, if its usual value means what was done before.
    assert digest(deciding(values))[:8] == name_by_0_2_0


def test_what_is_set_otherwise_has_another_name() -> None:
    values = small_values()
    assert {"release", "stop"}.isdisjoint(deciding(values))
    assert deciding({**values, "release": "last"})["release"] == "last"
    assert deciding({**values, "stop": {}})["stop"]["patience"] == 1
    heads = small_values(training__method="prototypes")
    assert renamed(heads)["name"] != renamed(values)["name"]


@pytest.mark.parametrize(
    ("sweep", "repeat", "key", "option"),
    [
        ([("runtime.device", ["cpu", "cuda"])], [], "runtime.device", "--sweep"),
        ([("privacy.epsilon", [4, 8, 4.0])], [], "privacy.epsilon", "--sweep"),
        ([("validation.why", ["this", "that"]), ("model.seed", [0, 1])], [], "validation.why",
         "--sweep"),
        ([("privacy.epsilon", [4, 8])], [("runtime.device", ["cpu", "cuda"])], "runtime.device",
         "--repeat"),
    ],
    ids=["runtime", "equal", "validation", "repeated"],
)  # fmt: skip
def test_two_values_of_one_run_are_refused(
    sweep: list[Any], repeat: list[Any], key: str, option: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        list(members(small_values(), sweep, repeat))
    assert (refused.value.setting, refused.value.released) == (key, False)
    assert f"{option} {key}" in str(refused.value)


def test_values_that_move_results_are_runs_of_their_own() -> None:
    runs = list(members(small_values(), [("privacy.epsilon", [4, 8])], [("model.seed", [0, 1])]))
    assert len({run.folder.root for run in runs}) == 4
