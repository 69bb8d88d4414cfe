"""A pool in the order of its teachers: each one's records, whole, and nobody else's."""

from __future__ import annotations

import signal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpal.data.partitions import read_parts, write_parts
from dpal.data.pool_by_teacher import GroupedPool, made_of, write_grouped
from dpal.data.sources import Role, Source, open_source
from dpal.errors import DataError
from dpal.runs.teachers import load_rows
from tests.conftest import ROOT, nothing_released, write_blobs
from tests.variants import quick_and_slow

ROWS, WIDTH = 5000, 3  # five batches, or six of two files
OF = "ab" * 32  # what it is said to be made of
SMALL = 1 << 10  # bytes of a run: many runs, and many stretches


def write(path: Path, rows: int, content: str, *, wide: bool, first: int = 0) -> None:
    """Records of one kind; wide ones are stored in larger types."""
    numbers = np.arange(first, first + rows)
    columns: dict[str, Any] = {"id": [f"secret-{row}" for row in numbers]}
    if content == "features":
        values = np.outer(numbers, np.arange(1, WIDTH + 1)).astype(np.float32)
        kind = pa.large_list(pa.float64()) if wide else pa.list_(pa.float32(), WIDTH)
        columns["features"] = pa.array(values.tolist(), kind)
    elif content == "image":
        digits = pq.read_table(ROOT / "data" / "digits-pool.parquet", columns=["image"])
        kind = pa.large_binary() if wide else pa.binary()
        columns["image"] = pa.array(digits["image"].to_pylist()[first : first + rows], kind)
    several = content == "features"
    labels = [[row % 2, row % 3 - 1] if several else int(row % 5) for row in numbers]
    kind = (
        pa.list_(pa.int64() if wide else pa.int8())
        if several
        else pa.int64()
        if wide
        else pa.uint8()
    )
    columns["label"] = pa.array(labels, kind)
    pq.write_table(pa.table(columns), path)


def opened(folder: Path, content: str) -> Source:
    """Two files that store the same in different types."""
    write(folder / "a.parquet", ROWS // 2, content, wide=False)
    write(folder / "b.parquet", ROWS // 2, content, wide=True, first=ROWS // 2)
    paths = [folder / "a.parquet", folder / "b.parquet"]
    return open_source(paths, Role.POOL, label_column="label")


@pytest.mark.parametrize(
    ("content", "run_bytes"),
    quick_and_slow(
        [("features", SMALL), ("features", 1 << 26)],
        product(["features", "image"], [SMALL, 1 << 26]),
    ),
)
def test_each_teacher_has_the_records_that_a_scan_of_the_pool_finds(tmp_path, content, run_bytes):
    source, path = opened(tmp_path, content), tmp_path / "grouped.parquet"
    parts = np.random.default_rng(0).permutation(np.arange(ROWS) ** 2 // 7919 % 7)
    write_grouped(path, source, parts, made_of=OF, run_bytes=run_bytes)
    with GroupedPool(path, source, OF) as grouped:
        for teacher in range(parts.max() + 1):
            inputs, labels = grouped.load(teacher)
            there = load_rows(source, np.flatnonzero(parts == teacher), source.task)
            assert torch.equal(inputs, there[0])
            assert torch.equal(labels, there[1])
            assert (inputs.dtype, labels.dtype) == (there[0].dtype, there[1].dtype)


@given(st.lists(st.integers(0, 11), min_size=1, max_size=60), st.integers(1, 400))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_record_is_one_teachers_and_in_the_order_of_the_pool(tmp_path, owners, run_bytes):
    parts = np.array(owners, np.int64)
    paths = []
    for first in range(0, parts.size, 8):  # a file is a batch at least, and so can be a run
        paths.append(tmp_path / f"{first}.parquet")
        write(paths[-1], min(8, parts.size - first), "features", wide=False, first=first)
    source = open_source(paths, Role.POOL, label_column="label")
    write_grouped(tmp_path / "g", source, parts, made_of=OF, run_bytes=run_bytes)
    with GroupedPool(tmp_path / "g", source, OF) as grouped:
        for teacher in set(owners):
            rows = grouped.load(teacher)[0][:, 0].long().tolist()
            assert rows == np.flatnonzero(parts == teacher).tolist()


def test_it_is_for_its_owner_alone_and_names_nobody(tmp_path):
    source, path = opened(tmp_path, "features"), tmp_path / "inside" / "grouped.parquet"
    write_grouped(path, source, np.arange(ROWS) % 5, made_of=OF, run_bytes=SMALL)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]
    assert "id" not in pq.read_schema(path).names
    assert b"secret-" not in path.read_bytes()


def test_it_is_made_of_all_that_decides_what_is_in_it(tmp_path):
    write_blobs(tmp_path / "a.parquet", 60, seed=1)
    write_blobs(tmp_path / "b.parquet", 60, seed=2)
    a, b = (
        open_source(tmp_path / f"{name}.parquet", Role.POOL, label_column="label") for name in "ab"
    )
    parts, others = tmp_path / "parts.parquet", tmp_path / "others.parquet"
    write_parts(parts, a, 5, group_column=None, seed=0)
    write_parts(others, a, 5, group_column=None, seed=1)
    assert made_of(a, parts) == made_of(a, parts)
    assert len({made_of(a, parts), made_of(b, parts), made_of(a, others)}) == 3
    write_grouped(tmp_path / "g", a, read_parts(parts), made_of=made_of(a, parts))
    with pytest.raises(DataError, match="other parts") as refused:
        GroupedPool(tmp_path / "g", a, made_of(a, others))
    assert nothing_released(refused.value)


def test_a_damaged_one_is_refused(tmp_path):
    source, path = opened(tmp_path, "features"), tmp_path / "grouped.parquet"
    write_grouped(path, source, np.zeros(ROWS, np.int64), made_of=OF)
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1  # in a page, whose checksum differs then
    path.write_bytes(content)
    with GroupedPool(path, source, OF) as grouped, pytest.raises(DataError, match="delete it"):
        grouped.load(0)
    path.write_bytes(content[:-20])
    with pytest.raises(DataError, match="delete it"):
        GroupedPool(path, source, OF)
    path.unlink()
    with pytest.raises(DataError, match="delete it"):
        GroupedPool(path, source, OF)


@pytest.mark.parametrize("rows", [ROWS - 1, ROWS + 1])
def test_a_pool_of_other_records_than_were_dealt_out_is_refused(tmp_path, rows):
    source = opened(tmp_path, "features")
    with pytest.raises(DataError, match="other records"):
        write_grouped(tmp_path / "g" / "g", source, np.zeros(rows, np.int64), made_of=OF)
    assert list((tmp_path / "g").iterdir()) == []


# Kills the process before a step, once it was reached so often.
KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
import dpal.files.atomic_writes, dpal.data.pool_by_teacher as grouped
from dpal.data.sources import Role, open_source
real, left = {step}, {often}
def dying(*arguments, **named):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **named)
{step} = dying
source = open_source(Path("p.parquet"), Role.POOL, label_column="label")
parts = np.arange({rows}) % 5
grouped.write_grouped(Path("inside/g.parquet"), source, parts, made_of="{of}", run_bytes={run})
"""
STEPS = {
    "sorting the first run": ("grouped._sorted", 0),
    "sorting a later run": ("grouped._sorted", 3),
    "before any is written out": ("grouped.write_private_parquet", 0),
    "in the middle of writing out": ("grouped._sorted", 7),
    "before it is renamed": ("Path.replace", 0),
}


@pytest.mark.parametrize(("step", "often"), STEPS.values(), ids=STEPS)
def test_killed_it_is_absent_and_is_made_anew(tmp_path, monkeypatch, forked, step, often):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "p.parquet", ROWS, "features", wide=False)
    program = KILLED.format(step=step, often=often, rows=ROWS, of=OF, run=SMALL)
    died = forked.run(program)
    assert died.returncode == -signal.SIGKILL, died.stderr
    path = tmp_path / "inside" / "g.parquet"
    assert not path.exists()
    source = open_source(tmp_path / "p.parquet", Role.POOL, label_column="label")
    write_grouped(path, source, np.arange(ROWS) % 5, made_of=OF, run_bytes=SMALL)
    assert list(path.parent.iterdir()) == [path]  # what was begun is swept away
    with GroupedPool(path, source, OF) as grouped:
        assert grouped.load(4)[0][:, 0].long().tolist() == list(range(4, ROWS, 5))
