"""Rows in the order of their hashes, whether or not memory has room for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpal.data import hash_runs
from dpal.data.hash_runs import WIDE, HashRuns, RowsInOrder, array_for, first_of_equal, with_hashes
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
