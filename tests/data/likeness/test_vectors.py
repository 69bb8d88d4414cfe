"""Feature vectors are recognised up to their last places, and no further."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.data.likeness import vectors
from dpal.data.likeness.record_sketches import Described
from dpal.data.parquet import RowNumbers
from dpal.errors import DataError
from tests.conftest import owner_reads
from tests.data.copies import SAME_VALUES
from tests.data.rates import Share

SALT = bytes(range(32))


def described(values: np.ndarray, salt: bytes = SALT) -> Described:
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    rows = RowNumbers(Path("vectors.parquet"), np.arange(len(values)))
    return vectors.describe(column, rows=rows, salt=salt)


def table(rows: int, width: int, seed: int = 0) -> np.ndarray:
    """Values that lie on all edges of binary and decimal grids, beside others that do not."""
    draw = np.random.default_rng(seed)
    kinds = [
        draw.normal(size=(rows, width)),
        draw.integers(-4, 5, (rows, width)),
        draw.integers(0, 1000, (rows, width)) / 8,
        np.round(draw.normal(size=(rows, width)), 2),
        10.0 ** draw.integers(-30, 30, (rows, width)),
    ]
    return np.choose(draw.integers(0, 5, (rows, width)), kinds).astype(np.float32)


@pytest.mark.parametrize("way", SAME_VALUES)
def test_copies_up_to_the_last_places_are_recognised(way):
    values = table(500, 60)
    changed = np.array([SAME_VALUES[way](row) for row in values.tolist()], np.float32)
    known, copies = described(values), described(changed)
    found = vectors.find(known.sketches, copies.sketches)
    assert found.tolist() == list(range(500))


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_all_values_may_move_by_a_last_place_either_way(seed, width):
    values = table(20, width, seed)
    aim = np.where(np.random.default_rng(seed).random(values.shape) < 0.5, -np.inf, np.inf)
    moved = np.nextafter(values, aim.astype(np.float32))
    known, copies = described(values), described(moved)
    found = vectors.find(known.sketches, copies.sketches)
    assert [known.contents[at] for at in found] == known.contents


def test_one_other_value_is_another_vector():
    values = table(500, 60)
    values[:, 7] = np.random.default_rng(1).uniform(1, 100, 500)
    other = values.copy()
    other[:, 7] *= 1.001
    known, new = described(values), described(other)
    assert (vectors.find(known.sketches, new.sketches) == -1).all()
    assert len(set(known.contents) & set(new.contents)) == 0


def test_precision_and_the_sign_of_zero_make_no_difference():
    values = table(20, 5)
    assert described(values.astype(np.float64)).contents == described(values).contents
    zeros = np.zeros((1, 4), np.float32)
    assert described(-zeros).contents == described(zeros).contents
    tiny = np.full((1, 4), 1e-45, np.float32)  # the place next to zero
    assert vectors.find(described(zeros).sketches, described(tiny).sketches).tolist() == [0]


def test_vectors_of_other_widths_and_under_other_salts_are_not_compared():
    values = table(50, 8)
    wider = np.concatenate([values, np.zeros((50, 1), np.float32)], axis=1)
    known = described(values).sketches
    assert (vectors.find(known, described(wider).sketches) == -1).all()
    assert (vectors.find(known, described(values, bytes(32)).sketches) == -1).all()


def test_of_several_the_first_counts_and_none_is_none():
    values = np.repeat(table(1, 8), 3, axis=0)
    values[1:] = np.nextafter(values[1:], np.float32(np.inf))
    known = described(values).sketches
    assert vectors.find(known, known[1:]).tolist() == [0, 0]
    assert vectors.find(known[:0], known).tolist() == [-1] * 3
    assert vectors.find(known, known[:0]).size == 0


def test_a_value_that_is_no_number_is_refused():
    values = table(3, 4)
    values[2, 1] = np.nan
    with owner_reads(DataError, match="row 2 .*missing, NaN"):
        described(values)


def test_this_tolerance_is_needed(monkeypatch):
    """The test above rejects a grid: with no room between steps some copies are missed."""
    monkeypatch.setattr(vectors, "_LAST_PLACES", 2.0**-26)
    values = table(500, 60)
    moved = np.nextafter(values, np.float32(np.inf))
    found = vectors.find(described(values).sketches, described(moved).sketches)
    assert (found == -1).mean() > 0.01


def test_new_vectors_are_no_copies():
    """None in 100,000, of values that many share: at most 1 in 33,000 with 95 % confidence."""
    draw = np.random.default_rng(9)
    values = np.unique(draw.integers(0, 40, (250_000, 6)).astype(np.float32), axis=0)
    draw.shuffle(values)
    known, new = described(values[:100_000]), described(values[100_000:200_000])
    alarms = Share(int((vectors.find(known.sketches, new.sketches) >= 0).sum()), 100_000)
    assert alarms.most <= 1e-4, alarms
