"""Shards hold the rows and the batches of a whole read, wherever the cuts fall."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.data import file_shards
from dpal.data.file_shards import shard_batches, shards_of
from dpal.data.readers import BATCH_ROWS, raw_batches
from dpal.data.sources import Role, open_source
from dpal.errors import DataError, ParameterError
from tests.conftest import owner_reads

WIDTH = 4


def write(path, rows, *, group, split=False, first=0, width=WIDTH):
    values = np.arange(first * width, (first + rows) * width, dtype=np.float32)
    columns = {
        "id": pa.array([f"r-{first + i}" for i in range(rows)]),
        "features": pa.FixedSizeListArray.from_arrays(pa.array(values), width),
        "text_b": pa.array(["b" * (i % 7) for i in range(rows)]),
    }
    if split:
        drawn = np.random.default_rng(first).random(rows) < 0.7
        columns["split"] = pa.array(np.where(drawn, "train", "test"))
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def source_of(*paths):
    return open_source(list(paths), Role.POOL, label_column="label")


def whole(source, columns):
    return [(batch.first_row, batch.table) for batch in raw_batches(source, columns)]


def sharded(source, count, columns):
    return [
        (batch.first_row, batch.table)
        for shard in shards_of(source, count)
        for batch in shard_batches(source, shard, columns)
    ]


def whole_read(source):
    return raw_batches(source, ["features"])


def sharded_read(source):
    for shard in shards_of(source, 4):
        yield from shard_batches(source, shard, ["features"])


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 9000),
    group=st.integers(300, 5000),
    count=st.integers(1, 12),
    split=st.booleans(),
    second=st.integers(1, 3000),
)
def test_shards_are_the_whole_cut_between_batches(
    tmp_path_factory, rows, group, count, split, second
):
    place = tmp_path_factory.mktemp("shards")
    source = source_of(
        write(place / "a.parquet", rows, group=group, split=split),
        write(place / "b.parquet", second, group=group, split=split, first=rows),
    )
    columns = ["features", "id"]
    expected, found = whole(source, columns), sharded(source, count, columns)
    assert [first for first, _ in found] == [first for first, _ in expected]
    assert all(mine.equals(theirs) for (_, mine), (_, theirs) in zip(found, expected, strict=True))


def test_shards_are_alike_in_length_and_end_where_row_groups_do(tmp_path):
    source = source_of(write(tmp_path / "a.parquet", 20_000, group=2500))
    found = shards_of(source, 4)
    assert [one.number for one in found] == list(range(len(found)))
    assert sum(one.rows for one in found) == 20_000
    assert all(one.start % BATCH_ROWS == 0 for one in found)
    assert max(one.rows for one in found) <= 5 * BATCH_ROWS
    # 5,120 rows are asked for; the batch behind the second row group's end is at 5,120 as well.
    assert found[1].start == 5120


def test_a_longer_pool_has_more_shards_not_longer_ones(tmp_path, monkeypatch):
    source = source_of(write(tmp_path / "a.parquet", 20_000, group=20_000))
    assert len(shards_of(source, 2)) == 2
    monkeypatch.setattr(file_shards, "MOST_ROWS", 4 * BATCH_ROWS)
    found = shards_of(source, 2)
    assert len(found) == 5
    assert max(one.rows for one in found) == 4 * BATCH_ROWS


def test_another_file_is_not_read(tmp_path):
    path = write(tmp_path / "a.parquet", 3000, group=1000)
    source = source_of(path)
    shard = shards_of(source, 2)[1]
    write(path, 3001, group=1000)
    with owner_reads(DataError, match="another size"):
        list(shard_batches(source, shard, ["id"]))
    gone = replace(source, paths=(tmp_path / "gone.parquet",))
    with owner_reads(DataError, match="FileNotFoundError"):
        list(shard_batches(gone, shard, ["id"]))
    with owner_reads(DataError, match="cannot be read"):
        shards_of(gone, 2)


def test_no_shards_are_refused(tmp_path):
    source = source_of(write(tmp_path / "a.parquet", 10, group=10))
    with pytest.raises(ParameterError, match="shards"):
        shards_of(source, 0)


@pytest.mark.slow
@pytest.mark.parametrize("read", [whole_read, sharded_read])
def test_a_longer_file_takes_no_more_memory(tmp_path, read):
    peaks = []
    for rows in (50_000, 200_000):
        source = source_of(write(tmp_path / f"{rows}.parquet", rows, group=10_000, width=64))
        before, most = pa.total_allocated_bytes(), 0
        for _ in read(source):
            most = max(most, pa.total_allocated_bytes() - before)
        peaks.append(most)
    assert 0 < peaks[1] < 1.5 * peaks[0]
    assert peaks[1] < 200_000 * 64 * 4 / 4
