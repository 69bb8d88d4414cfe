"""A tiny book by its command: cells side by side, each tracked, gone on with after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
import yaml

from dpal.book.book_run import open_book
from dpal.files.dvc_pointers import pointed_at
from tests.book.books import tiny
from tests.conftest import command
from tests.flows.calling import call

FOLDER = Path("artifacts/books/tiny")
FILE = Path("tiny.yaml")
CELLS = FOLDER / "cells"


@pytest.fixture
def book(workplace):
    FILE.write_text(yaml.safe_dump(tiny()), encoding="utf-8")
    return workplace


def results():
    return {path.name: path.read_bytes() for path in CELLS.glob("*.json")}


def left():
    return len(open_book(FILE, Path(), Path("artifacts")).orders())


@pytest.mark.slow
def test_a_book_is_made_resumed_and_used_again(book, dpal):
    part = dpal("book", "tiny.yaml", "--data", ".", "--only", "seed=0", "--parallel", "2")
    assert part.returncode == 0, part.stderr
    assert part.stdout.strip().endswith("book.html")
    first = results()
    assert (len(first), left()) == (3, 3)
    rest = dpal("book", "tiny.yaml", "--data", ".", "--export", "copied")
    assert rest.returncode == 0, rest.stderr
    assert left() == 0
    assert first.items() <= results().items()  # not one byte of a finished cell is made anew
    assert len(list(Path("copied/cells").glob("*.json"))) == 6
    page = (FOLDER / "book.html").read_text(encoding="utf-8")
    assert all(name in page for name in results())
    assert pointed_at(CELLS)
    _require_tracked()


def _require_tracked():
    """One MLflow run for the book, a finished child for each cell, with its figures."""
    mlflow.set_tracking_uri(f"sqlite:///{Path('artifacts').resolve() / 'mlflow.sqlite'}")
    runs = mlflow.search_runs(experiment_names=["dpal"], output_format="list")
    [parent] = [run for run in runs if run.data.tags["dpal.phase"] == "book"]
    children = [run for run in runs if run.data.tags["dpal.phase"] == "cell"]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    told = {run.data.tags["dpal.cell"]: run.data.metrics["test_accuracy"] for run in children}
    kept = {values["digest"]: values["figures"]["accuracy"]
            for values in map(json.loads, results().values())}  # fmt: skip
    assert told == pytest.approx(kept)
    assert {run.info.status for run in (parent, *children)} == {"FINISHED"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--data", ".", "--only", "table-9"), "table-9"), (("--data", "nowhere"), "nowhere"),
     (("--set", "privacy.epsilon=3"), "runtime")],
    ids=["selection", "data", "setting"],
)  # fmt: skip
def test_what_is_impossible_is_refused_in_a_sentence(book, arguments, named):
    done = call("book", "tiny.yaml", *arguments)
    assert done.returncode == 2
    assert named in done.stderr.splitlines()[-1]
    assert not FOLDER.exists()


def test_a_book_that_is_not_public_is_refused(book):
    FILE.write_text(yaml.safe_dump(tiny(public=False)), encoding="utf-8")
    done = call("book", "tiny.yaml", "--data", ".", "--dry-run")
    assert done.returncode == 2
    assert "public: true" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("registered", ["pool.parquet", "validation.parquet"])
def test_records_of_a_data_set_are_in_no_book(registered, book):
    """Those that models learn from, and those that they are judged on."""
    limit = ("--epsilon", "8", "--delta", "1e-4")
    done = call("data", "register", "mine", registered, *limit)
    assert done.returncode == 0, done.stderr
    result = call("book", "tiny.yaml", "--data", ".")
    (said,) = (line for line in result.stderr.splitlines() if line.startswith("dpal: "))
    assert result.returncode == 2 and "data set mine" in said
    assert not FOLDER.joinpath("book.html").exists()
    assert left() == 6


def test_a_dry_run_makes_nothing(book):
    done = call("book", "tiny.yaml", "--data", ".", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "table-1" in done.stdout
    assert not FOLDER.exists()


@pytest.mark.slow
def test_a_killed_book_goes_on(book, prefect_api):
    """SIGKILL for the command while a cell runs: nobody is left, and nothing is paid twice."""
    typed = [command(), "book", "tiny.yaml", "--data", ".", "--parallel", "2"]
    surroundings = {**os.environ, "PREFECT_API_URL": prefect_api}
    process = subprocess.Popen(typed, env=surroundings, start_new_session=True)
    wait_until(lambda: bool(results()))
    process.kill()
    process.wait()
    before = results()
    assert 0 < len(before) < 6
    wait_until(lambda: not _alive(process.pid))
    assert not _alive(process.pid), "a process of the killed command is left"
    before = results()
    again = subprocess.run(typed, env=surroundings, check=False, timeout=240)
    assert again.returncode == 0
    assert left() == 0
    assert before.items() <= results().items()


def wait_until(done: Callable[[], bool]) -> None:
    """For minutes, at most; whoever waits looks whether it came."""
    until = time.monotonic() + 240
    while not done() and time.monotonic() < until:
        time.sleep(0.05)


def _alive(group: int) -> bool:
    """Whether a process of a group lives."""
    try:
        os.killpg(group, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True
