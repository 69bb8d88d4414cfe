from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpal.acquisition import highest_of_stream
from dpal.acquisition.highest_of_stream import HighestOfStream


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=12), max_size=12),
    st.integers(0, 20),
)
def test_the_highest_entries_stay_whatever_the_batches(batches, count):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(highest_of_stream, "_LEAST_BUFFER", 3)  # so that sorting happens in between
        highest = HighestOfStream(count)
        for batch in batches:
            keys, ties = np.array(batch, dtype=np.int64).reshape(-1, 2).T
            highest.offer(keys, ties, 10 * keys + ties)
        kept = highest.columns()
    expected = sorted(entry for batch in batches for entry in batch)[::-1][:count][::-1]
    found = list(zip(*(column.tolist() for column in kept[:2]), strict=True)) if kept else []
    assert found == expected
    assert not kept or kept[2].tolist() == [10 * key + tie for key, tie in expected]


def test_what_is_kept_does_not_grow_with_the_stream():
    generator, highest = np.random.default_rng(0), HighestOfStream(100)
    longest = 0
    for _ in range(2_000):
        highest.offer(generator.random(1_000))
        longest = max(longest, highest._buffered)
    assert longest <= highest_of_stream._LEAST_BUFFER + 1_000
    assert highest.columns()[0].size == 100
