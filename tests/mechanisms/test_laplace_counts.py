"""Noisy votes: the law of the noise, on every count, and exactness of the arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpal.accounting.events import LAPLACE_GRID, NoisyCounts
from dpal.errors import ParameterError
from dpal.mechanisms.laplace_counts import noisy_counts
from tests.conftest import nothing_released


def test_noise_has_the_size_that_is_charged(bits):
    # |noise| has mean and standard deviation 1 / epsilon: 60,000 values have a standard error of
    # 0.41 %, false alarm 1e-6 at 4.89 of them; 5 % more or less are 12.
    counts = np.zeros(60_000, dtype=np.int64)
    for event in (NoisyCounts(epsilon=0.5), NoisyCounts(epsilon=0.25, l0_sensitivity=2)):
        size = np.abs(noisy_counts(counts, event, rng=bits)).mean() * event.epsilon
        assert abs(size - 1) < 4.89 / math.sqrt(60_000)
        for wrong in (0.95, 1.05):
            assert abs(size / wrong - 1) > 4.89 / math.sqrt(60_000)


def test_every_count_is_noisy_also_an_empty_one(bits):
    counts = np.array([0, 5, 0, 1_000_000] * 500)
    noisy = noisy_counts(counts, NoisyCounts(epsilon=1.0), rng=bits)
    assert (noisy != counts).mean() > 0.999
    assert np.abs(noisy - counts).max() < 40
    assert (noisy * LAPLACE_GRID == np.rint(noisy * LAPLACE_GRID)).all()  # on the public grid


def test_a_count_that_is_none_is_refused(bits):
    for counts in ([-1], [1 << 40]):
        with pytest.raises(ParameterError, check=nothing_released):
            noisy_counts(np.array(counts), NoisyCounts(epsilon=1.0), rng=bits)
    assert noisy_counts(np.empty(0, np.int64), NoisyCounts(epsilon=1.0), rng=bits).size == 0
