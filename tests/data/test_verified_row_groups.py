"""What a file held when it was planned with, and whether it still does; large batches of it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data import verified_row_groups
from dpal.data.inspect_rows import inspect
from dpal.data.parquet import BATCH_ROWS
from dpal.data.pool_file_digests import as_recorded, require_as_recorded
from dpal.data.readers import raw_batches, usual_batches
from dpal.data.sources import Role, Source, open_source
from dpal.errors import DataChanged
from tests.conftest import having, write_blobs

HOUR = 3600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """600 records in four row groups, written an hour ago."""
    place = write_blobs(tmp_path / "p.parquet", 600, seed=1)
    pq.write_table(pq.read_table(place), place, row_group_size=150)
    return aged(place)


def aged(path: Path, *, by: int = HOUR) -> Path:
    about = path.stat()
    os.utime(path, (about.st_atime, about.st_mtime - by))
    return path


def planned(path: Path) -> Source:
    source = open_source(path, Role.POOL, label_column="label")
    return replace(source, known=inspect(source).files)


def flip(path: Path, *, group: int) -> None:
    """Another bit in the features of one row group; every size stays."""
    start, length = verified_row_groups.chunk(pq.read_metadata(path), group, 1)
    content = bytearray(path.read_bytes())
    content[start + length - 1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("columns", [["id"], ["label", "features"]])
def test_what_a_plan_read_is_the_digest_of_the_file(path, columns):
    table = pq.read_table(path)
    pq.write_table(table.append_column("unread", pa.array(range(600))), path, row_group_size=150)
    (known,) = planned(path).known
    assert known.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(set(known.row_groups())) == 4


def test_a_file_in_the_same_state_is_not_hashed_again(path, monkeypatch):
    source = planned(path)
    hashed: list[int] = []

    def noted(content: memoryview) -> object:
        hashed.append(len(content))
        return hashlib.sha256(content)

    monkeypatch.setattr(verified_row_groups, "sha256", noted)
    list(raw_batches(source, ["features"]))
    assert not hashed


def test_a_change_is_seen_whatever_its_time_says(path):
    source, before = planned(path), path.stat()
    flip(path, group=2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(DataChanged, check=having(row_groups=(2,))):
        list(raw_batches(source, ["features"]))
    list(raw_batches(source, ["id"]))


def test_a_file_that_was_written_a_moment_ago_is_hashed(path):
    path.write_bytes(path.read_bytes())
    (known,) = planned(path).known
    assert known.state == ""
    assert planned(aged(path)).known[0].state


def test_what_changed_between_two_runs_is_named(path):
    source = planned(path)
    recorded = as_recorded(source.known)
    require_as_recorded(recorded, source.paths, planned(path).known)
    pq.write_table(pq.read_table(path).slice(0, 450), path, row_group_size=150)
    with pytest.raises(DataChanged, check=having(row_groups=(3,))):
        require_as_recorded(recorded, source.paths, planned(path).known)
    two = [*source.known, *source.known]
    with pytest.raises(DataChanged, check=having(row_groups=())):
        require_as_recorded(recorded, [*source.paths] * 2, two)


@pytest.mark.parametrize("split", [False, True])
def test_a_large_batch_is_several_usual_ones(tmp_path, split):
    place = write_blobs(tmp_path / "p.parquet", 9 * BATCH_ROWS + 77, seed=1)
    table = pq.read_table(place)
    if split:
        roles = np.where(np.random.default_rng(0).random(len(table)) < 0.3, "test", "train")
        table = table.append_column("split", pa.array(roles))
    pq.write_table(table, place, row_group_size=1700)
    source = open_source(place, Role.POOL, label_column="label")
    usual = list(raw_batches(source, ["id", "features"]))
    large = list(raw_batches(source, ["id", "features"], large=True))
    assert len(large) == 1
    parts = [(batch, part) for batch in large for part in usual_batches(batch)]
    assert [batch.table for batch in usual] == [
        batch.table.slice(part.start, part.stop - part.start) for batch, part in parts
    ]
    assert [batch.first_row for batch in usual] == [
        batch.first_row + part.start for batch, part in parts
    ]
