"""Damaged or mistyped files of ballots and records: done, or one sentence and nothing released."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.config.campaign import parse_config
from dpal.runs.prepare_campaign import open_data
from flows.cli.terminal import run_and_explain_errors
from tests.conftest import small_values
from tests.data.image_pools import images
from tests.flows.calling import Result, call
from tests.flows.voting import ballots, write_ballots
from tests.fuzz.outcomes import Tally
from tests.fuzz.parquet_damage import damage

FEW, MANY = range(16), range(1000, 1450)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def each_damage(original: Path, place: Path, seeds: range):
    """Yields how a fresh copy at `place` was damaged, again and again."""
    for seed in seeds:
        remove(place)
        shutil.copy(original, place)
        choose = random.Random(seed)
        yield f"seed {seed}, {damage(place, choose)}", choose


def write_originals(folder: Path) -> dict[str, Path]:
    """Ballots of each kind, and files of records of each kind."""
    made: dict[str, str | Path] = {
        "ballot": write_ballots(folder / "ballot.parquet", ballots(1)),
        "scores": write_ballots(folder / "scores.parquet", ballots(2) * 0.9, column="scores"),
        "class": write_ballots(
            folder / "class.parquet", np.arange(60).reshape(20, 3) % 4, column="class"
        ),
        "teacher": folder / "teacher.parquet",
    }
    table = pq.read_table(made["ballot"])
    rows = pa.array([name == "t1" for name in table["teacher"].to_pylist()])
    pq.write_table(table.filter(rows).drop_columns(["teacher"]), made["teacher"])
    return {name: Path(path) for name, path in made.items()}


def try_ballots(seeds: range) -> Tally:
    originals, tally = write_originals(Path()), Tally()
    for seed in seeds:
        name = random.Random(-seed).choice(list(originals))
        for how, choose in each_damage(originals[name], Path("b.parquet"), range(seed, seed + 1)):
            extra = choose.choice(
                (
                    (), (), ("--name", f"v{seed}"), ("--partitions", "b.parquet"),
                    ("--explain", "--public", "b.parquet"),
                )
            )  # fmt: skip
            given = "ballot.parquet" if "b.parquet" in extra else "b.parquet"
            options = ("--epsilon", "2", "--records", "2000", "--sigma", "30", "--blocks", "1")
            tally.run(f"{how} ({name})", "vote", given, *options, *extra)
    return tally


def looked_at(values: dict) -> Result:
    """What `dpal plan` does before it plans, as the command ends."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        code = run_and_explain_errors(lambda: open_data(parse_config(values)) and 0)
    return Result(code, "", err.getvalue())


def try_records(seeds: range) -> Tally:
    tally = Tally()
    images(Path("pictures.parquet"), 60)
    small = {"schedule": {"initial": 20, "queries": [], "batch_size": 10, "epochs_per_phase": 1}}
    pictures = {"pool": "damaged.parquet", "validation": "pictures.parquet"}
    settings = {
        "pool": small_values(data={"pool": "damaged.parquet", "validation": "validation.parquet"}),
        "validation": small_values(data={"pool": "pool.parquet", "validation": "damaged.parquet"}),
        "pictures": small_values(data=pictures, **small, acquisition="random"),
    }
    assert (
        call("data", "register", "clinic", "validation.parquet", "--epsilon", "8").returncode == 0
    )
    for seed in seeds:
        name = random.Random(-seed).choice(list(settings))
        original, place = Path(f"{name}.parquet"), Path("damaged.parquet")
        for how, choose in each_damage(original, place, range(seed, seed + 1)):
            tally.note(f"{how} ({name})", looked_at(settings[name]))
            if choose.random() < 0.3:
                tally.run(f"{how} ({name})", "data", "add", "clinic", "damaged.parquet")
    return tally


@pytest.fixture(autouse=True)
def _here(workplace):
    """An empty folder with a pool and a validation set."""


def test_damaged_ballots_are_sentences():
    tally = try_ballots(FEW)
    assert not tally.astray, "\n".join(tally.astray)
    assert tally.ends[2] > len(FEW) / 2


def test_damaged_records_are_sentences():
    tally = try_records(FEW)
    assert not tally.astray, "\n".join(tally.astray)
    assert tally.ends[2] > len(FEW) / 2


@pytest.mark.slow
def test_many_damaged_ballots_are_sentences():
    tally = try_ballots(MANY)
    assert not tally.astray, "\n".join(tally.astray)


@pytest.mark.slow
def test_many_damaged_records_are_sentences():
    tally = try_records(MANY)
    assert not tally.astray, "\n".join(tally.astray)
