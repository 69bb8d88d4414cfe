"""A coin that holds a share of records out, and everything that reads the two parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data.file_shards import shard_batches, shards_of
from dpal.data.held_out import HeldOutShare
from dpal.data.importing.parts import drawn_part
from dpal.data.readers import raw_batches
from dpal.data.sources import Role, Source, open_source
from dpal.errors import ParameterError
from tests.conftest import write_blobs

NAMES = [f"record-{number}" for number in range(20_000)]
FIRST = [2, 11, 16, 19, 26, 29, 37, 40]  # by SHA-256 alone: hashlib, no code of dpal


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_a_share_of_all_names_is_held_out(share):
    """Within five standard deviations of it: chance is outside once in a million."""
    held_out = np.array(HeldOutShare(share=share).holds_out(NAMES))
    assert abs(held_out.mean() - share) < 5 * np.sqrt(share * (1 - share) / len(NAMES))


def test_the_coin_is_of_the_name_alone():
    """Campaigns go on with it: another coin would move people between both parts."""
    coin = HeldOutShare(share=0.2)
    once = coin.holds_out(NAMES)
    assert np.flatnonzero(once)[:8].tolist() == FIRST
    assert coin.holds_out(NAMES[::-1])[::-1] == once
    more = HeldOutShare(share=0.3).holds_out(NAMES)
    assert all(more[row] for row in np.flatnonzero(once))


def test_groups_are_named_by_numbers_or_by_the_same_text(tmp_path):
    kept = []
    for kind in (pa.int64(), pa.string()):
        write_blobs(tmp_path / "pool.parquet", 300, seed=1)
        table = pq.read_table(tmp_path / "pool.parquet")
        persons = pa.array(np.arange(300) % 40).cast(kind)
        pq.write_table(table.append_column("person", persons), tmp_path / "pool.parquet")
        source = open_source(tmp_path / "pool.parquet", Role.POOL, label_column="label")
        kept.append(ids(replace(source, held_out=HeldOutShare(share=0.4, column="person"))))
    assert kept[0] == kept[1]
    assert 0 < len(kept[0]) < 300


def test_what_an_import_left_in_its_pool_is_held_out_from_again():
    """Its coin is another one: by the same, nothing would be held out."""
    left = [name for name in NAMES if drawn_part(name, 0.2) == "train"]
    assert 0.78 < len(left) / len(NAMES) < 0.82
    assert abs(np.mean(HeldOutShare(share=0.2).holds_out(left)) - 0.2) < 0.02


@pytest.mark.parametrize("share", [0.0, -0.1, 0.51, float("nan")])
def test_a_share_is_above_zero_and_at_most_half(share):
    with pytest.raises(ParameterError):
        HeldOutShare(share=share)


def parts(folder: Path, rows: int) -> tuple[Source, Source]:
    """The pool and the validation set of two files, named a-00000 and b-00000 on."""
    places = [
        write_blobs(folder / f"{name}.parquet", rows, seed=seed, prefix=name)
        for seed, name in enumerate("ab")
    ]
    coin = HeldOutShare(share=0.2)
    pool, validation = (
        replace(open_source(places, role, label_column="label"), held_out=coin) for role in Role
    )
    return pool, validation


def ids(source: Source) -> list[str]:
    batches = raw_batches(source, ["id"])
    return [name for batch in batches for name in batch.table.column(0).to_pylist()]


def test_both_parts_together_are_the_files_and_share_nobody(tmp_path):
    pool, validation = (ids(source) for source in parts(tmp_path, 3000))
    every = [f"{prefix}-{number:05d}" for prefix in "ab" for number in range(3000)]
    assert sorted(pool + validation) == every
    assert 0.15 < len(validation) / len(every) < 0.25


@pytest.mark.parametrize("columns", [["label"], ["id", "features"]], ids=["without", "with"])
def test_rows_are_counted_within_a_part_whatever_is_read(tmp_path, columns):
    for source in parts(tmp_path, 3000):
        found = list(raw_batches(source, columns))
        assert np.concatenate([b.rows for b in found]).tolist() == list(range(len(ids(source))))
        assert all(batch.table.schema.names == columns for batch in found)


def test_shards_of_a_part_hold_its_rows_in_order(tmp_path):
    """Workers read shards, and say which rows those are."""
    for source in parts(tmp_path, 3000):
        cut = shards_of(source, 3)
        assert len(cut) > 2
        batches = [batch for shard in cut for batch in shard_batches(source, shard, ["id"])]
        read = [batch.table.column(0).to_pylist() for batch in batches]
        assert [name for names in read for name in names] == ids(source)
        assert [row for batch in batches for row in batch.rows] == list(range(len(ids(source))))
