from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpal.acquisition.noisy_threshold_search import fine_keys
from dpal.acquisition.threshold_search_start import cut_points
from dpal.errors import ParameterError
from tests.conftest import RepeatableBits

KEYS = st.lists(st.integers(0, (1 << 32) - 1), max_size=50).map(
    lambda values: np.array(values, dtype=np.uint32)
)


@given(KEYS, st.floats(1e-6, 0.999), st.integers(1, 10))
def test_cuts_are_as_many_as_comparisons_tell_apart_and_ascend(public, share, bits):
    cuts = cut_points(public, share=share, bits=bits)
    assert cuts.dtype == np.uint32
    assert cuts.shape == ((1 << bits) - 1,)
    assert (np.diff(cuts.astype(np.int64)) >= 0).all()


@given(KEYS, st.floats(1e-6, 0.999))
def test_no_order_of_the_public_records_matters(public, share):
    shuffled = np.random.default_rng(0).permutation(public)
    assert (
        cut_points(public, share=share, bits=6) == cut_points(shuffled, share=share, bits=6)
    ).all()


@pytest.mark.parametrize("share", [0.005, 0.1, 0.6])
def test_the_search_begins_at_the_public_quantile_and_is_finest_there(share):
    public = np.random.default_rng(1).integers(0, 1 << 32, 20_000).astype(np.uint32)
    cuts = cut_points(public, share=share, bits=8)
    above = np.array([(public >= cut).mean() for cut in cuts])
    assert above[127] == pytest.approx(share, rel=0.02)
    steps = -np.diff(np.log(np.maximum(above, 1e-9) / (1 - np.minimum(above, 1 - 1e-9))))
    assert steps[120:135].mean() < 0.1 * np.abs(steps[:30]).mean() + 0.02
    assert above[0] > 0.9 > 0.5 > above[-1]


def test_scores_that_all_look_the_same_are_told_apart_by_random_bits():
    """Twelve bits of ties: about equally many in each half of a level, at a chance of 1e-6."""
    keys = fine_keys(np.full(10_000, 0.25), width=1.0, rng=RepeatableBits(3))
    assert set(keys >> 12) == {1 << 18}
    assert abs(int((keys & 4095 < 2048).sum()) - 5000) < 4.9 * 50


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_a_share_that_cannot_be_is_refused(share):
    with pytest.raises(ParameterError):
        cut_points(np.empty(0, np.uint32), share=share, bits=8)
