"""A process that forks commands, and stories to tell with them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import write_blobs, write_config
from tests.faults.story import (
    Commands,
    Story,
    Told,
    forked_commands,
    run_to_the_end,
    tell,
    type_once,
)

MakeStory = Callable[..., Story]
MakePlaces = Callable[..., Callable[[], Path]]


@pytest.fixture(scope="session")
def commands(
    tmp_path_factory: pytest.TempPathFactory, prefect_api: str, state_home: Path
) -> Iterator[Commands]:
    """Commands that start in milliseconds and talk to the tests' Prefect server."""
    with forked_commands(tmp_path_factory.mktemp("zygote"), prefect_api) as running:
        yield running


@pytest.fixture(scope="session")
def new_place(
    tmp_path_factory: pytest.TempPathFactory, mlflow_uri: str
) -> Callable[..., Callable[[], Path]]:
    """Makes makers of folders, each with a small pool and the configuration of a campaign."""

    def maker(name: str, *, rows: int = 300, **overrides: Any) -> Callable[[], Path]:
        def make() -> Path:
            place = tmp_path_factory.mktemp(name)
            write_blobs(place / "pool" / "january.parquet", rows, seed=1)
            write_blobs(place / "validation.parquet", 100, seed=2, prefix="v")
            write_config(place / f"{name}.yaml", **_values(name, mlflow_uri, **overrides))
            return place

        return make

    return maker


@pytest.fixture(scope="session")
def labeled_by_hand(new_place: MakePlaces) -> Callable[..., Story]:
    """A campaign that waits for a person's labels in each phase, and writes checkpoints."""

    def story(queries: int) -> Story:
        place = new_place("byhand", labeler__kind="file", schedule=_schedule([30] * queries))
        return Story(place, ("byhand",), (run_to_the_end("byhand"),))

    return story


@pytest.fixture(scope="session")
def story(labeled_by_hand: MakeStory) -> Story:
    """The shortest one: two phases, both labeled by a person."""
    return labeled_by_hand(1)


@pytest.fixture(scope="session")
def undisturbed(story: Story, commands: Commands) -> Told:
    """How it goes when nothing goes wrong."""
    return tell(story, commands)


@pytest.fixture(scope="session")
def rerun(new_place: MakePlaces, mlflow_uri: str) -> Story:
    """A registered data set, a campaign, new records, and a campaign that starts from it."""
    data = {"pool": "pool", "validation": "validation.parquet", "dataset": "clinic"}
    settings = {"data": data, "schedule": _schedule([20]), "privacy__epsilon": 5.0}
    settings["privacy__delta"] = 1e-4

    def new_records(place: Path) -> None:
        write_blobs(place / "pool" / "march.parquet", 200, seed=5, prefix="n")
        again = _values("second", mlflow_uri, start_from="first", **settings)
        write_config(place / "second.yaml", **again)

    register = ("data", "register", "clinic", "pool", "--epsilon", "8", "--delta", "1e-4")
    return Story(
        new_place("first", **settings),
        ("first", "second"),
        (
            type_once(*register),
            run_to_the_end("first"),
            type_once("data", "add", "clinic", "pool", prepare=new_records),
            run_to_the_end("second"),
        ),
    )


@pytest.fixture(scope="session")
def hidden(new_place: MakePlaces) -> Story:
    """A campaign in hidden mode, where even the number of selected records is secret."""
    schedule = {"initial": 400, "queries": [400], "batch_size": 200, "epochs_per_phase": 2}
    place = new_place("unseen", rows=2000, privacy={"epsilon": 8.0}, schedule=schedule)
    return Story(place, ("unseen",), (run_to_the_end("unseen"),))


@pytest.fixture(scope="session")
def fitted(new_place: MakePlaces) -> Story:
    """A campaign that fits a head in one release for each phase."""
    place = new_place("solved", training__method="least_squares")
    return Story(place, ("solved",), (run_to_the_end("solved"),))


@pytest.fixture
def chance() -> np.random.Generator:
    """Where kills fall: the same ones again with DPAL_FAULT_SEED."""
    seed = int(os.environ.get("DPAL_FAULT_SEED") or secrets.randbits(32))
    print(f"DPAL_FAULT_SEED={seed}")  # noqa: T201  shown when the test fails
    return np.random.default_rng(seed)


def _schedule(queries: list[int]) -> dict[str, Any]:
    return {"initial": 60, "queries": queries, "batch_size": 30, "epochs_per_phase": 2}


def _values(name: str, mlflow_uri: str, **overrides: Any) -> dict[str, Any]:
    settings = {
        "name": name,
        "data__pool": "pool",
        "schedule": _schedule([30]),
        "runtime__mlflow_uri": mlflow_uri,
        "runtime__checkpoint_steps": 2,
        **overrides,
    }
    if "data" in overrides:
        settings.pop("data__pool")
    return settings
