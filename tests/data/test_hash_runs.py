"""Rows in the order of their hashes, whether or not memory has room for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpal.data import hash_runs
from dpal.data.hash_runs import (
    NARROW,
    WIDE,
    HashRuns,
    RowsInOrder,
    array_for,
    first_of_equal,
    with_hashes,
)
from dpal.errors import StorageError

KIND = np.dtype([*WIDE.descr, ("row", "<i8")])


def hashes(high: list[int], low: list[int]) -> np.ndarray:
    made = np.zeros(len(high), WIDE)
    made["high"], made["low"] = high, low
    return made


runs_of_hashes = st.lists(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1),
                  st.integers(0, 3)),
        max_size=30,
    ),
    max_size=6,
)  # fmt: skip


@pytest.fixture(params=["in memory", "on disk"])
def room(request, monkeypatch):
    """On disk everything is, and stretches are of a few rows."""
    if request.param == "on disk":
        monkeypatch.setattr(hash_runs, "IN_MEMORY", 0)
        monkeypatch.setattr(hash_runs, "_STRETCH", 4)


@given(runs_of_hashes)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_rows_come_in_the_order_of_hashes_and_equal_ones_as_they_came(tmp_path, room, runs):
    kept, row, plain = HashRuns(tmp_path, KIND), 0, []
    for run in runs:
        own = hashes([high for high, _ in run], [low for _, low in run])
        kept.add(with_hashes(own, row=np.arange(row, row + len(run))))
        plain += [(high, low, row + place) for place, (high, low) in enumerate(run)]
        row += len(run)
    assert kept.size == len(plain)
    stretches = list(kept.in_order())
    assert [tuple(each) for rows in stretches for each in rows.tolist()] == sorted(plain)
    # All of one hash are in one stretch.
    firsts = sum(int(first_of_equal(rows).sum()) for rows in stretches)
    assert firsts == len({(high, low) for high, low, _ in plain})


@given(runs_of_hashes)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_hashes_of_64_bits_alone_and_with_something_beside_them(tmp_path, room, runs):
    beside = np.dtype([*NARROW.descr, ("row", "<i8")])
    alone, kept = HashRuns(tmp_path, NARROW), HashRuns(tmp_path, beside)
    plain: list[tuple[int, int]] = []
    for run in runs:
        rows = np.array([(high, len(plain) + at) for at, (high, _) in enumerate(run)], beside)
        alone.add(rows["high"].copy().view(NARROW))
        kept.add(rows)
        plain += rows.tolist()
    stretches = [list(runs.in_order()) for runs in (alone, kept)]
    assert [high for rows in stretches[0] for (high,) in rows.tolist()] == [
        high for high, _ in sorted(plain)
    ]
    assert [row for rows in stretches[1] for row in rows.tolist()] == sorted(plain)
    for parts in stretches:  # all of one hash are in one stretch
        assert sum(np.unique(rows["high"]).size for rows in parts) == len({x for x, _ in plain})


def test_small_additions_become_few_runs_and_memory_holds_some(tmp_path, monkeypatch):
    monkeypatch.setattr(hash_runs, "IN_MEMORY", 2**12)
    kept, drawn = HashRuns(tmp_path, NARROW), np.random.default_rng(0)
    hashes = drawn.integers(0, 2**64, 2**14, np.uint64)
    for part in np.split(hashes, 256):  # of half a KiB each
        kept.add(part.view(NARROW))
    assert len(kept._runs) == 8 * hashes.size // 2**11
    assert sum(run.nbytes for run in kept._runs if isinstance(run.base, np.ndarray)) <= 2**12
    [rows] = kept.in_order()
    assert (rows["high"] == np.sort(hashes)).all()


def test_what_lies_on_disk_has_no_name(tmp_path, room):
    folder = tmp_path / "inside"
    kept, bytes_ = HashRuns(folder, KIND), RowsInOrder(folder, 5)
    for first in range(0, 60, 20):
        own = hashes(list(range(first, first + 20)), [0] * 20)
        kept.add(with_hashes(own, row=np.arange(20)))
        bytes_.add(np.full((20, 5), first, np.uint8))
    array = array_for(folder, (7, 3), np.int32)
    array[2, 1] = 9
    assert array.sum() == 9
    assert bytes_.all()[:, 0].tolist() == [0] * 20 + [20] * 20 + [40] * 20
    assert not list(tmp_path.rglob("*.*"))
    assert not folder.exists() or (not list(folder.iterdir()) and folder.stat().st_mode & 0o77 == 0)


def test_a_folder_that_takes_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(hash_runs, "IN_MEMORY", 0)
    blocked: Path = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StorageError):
        array_for(blocked / "inside", (7,), np.int32)
    with pytest.raises(StorageError):
        HashRuns(blocked / "inside", WIDE).add(hashes([1], [2]))
    with pytest.raises(StorageError):
        RowsInOrder(blocked / "inside", 1).add(np.zeros((1, 1), np.uint8))
