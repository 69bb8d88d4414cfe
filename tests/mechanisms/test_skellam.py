"""Skellam noise has its law, also where 64 bits do not decide, and its shares add up.

The bit source repeats, so a test passes or fails always. Thresholds are set for a false alarm of
1e-6 had the seed been drawn afresh.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp
from scipy import stats

from dpal.errors import ParameterError
from dpal.mechanisms import skellam
from dpal.mechanisms.coins import ERROR
from dpal.mechanisms.skellam import LARGEST_VARIANCE, poisson_numbers, skellam_noise
from dpal.randomness import secure
from tests.mechanisms.test_coins import GivenBits

FALSE_ALARM = 1e-6


def p_value(noise: np.ndarray, variance: float) -> float:
    """Chi-square of all values that are expected 20 times or more, and of the two tails."""
    law = stats.skellam(variance / 2, variance / 2)
    reach = int(10 * variance**0.5) + 10
    values = np.arange(-reach, reach + 1)
    expected = law.pmf(values) * noise.size
    kept = values[expected >= 20]
    edges = np.concatenate([[-np.inf], np.append(kept, kept[-1] + 1) - 0.5, [np.inf]])
    counts, _ = np.histogram(noise, edges)
    inner = law.pmf(kept)
    tails = law.cdf(kept[0] - 1), law.sf(kept[-1])
    chances = np.concatenate([[tails[0]], inner, [tails[1]]])
    return stats.chisquare(counts, chances / chances.sum() * noise.size).pvalue


@pytest.mark.parametrize("variance", [0.01, 0.49, 2.0, 40.5, 3_000.0])
def test_noise_has_its_law(variance, bits):
    assert p_value(skellam_noise(200_000, variance, rng=bits), variance) > FALSE_ALARM


@pytest.mark.parametrize("wrong", [0.95, 1.05])
def test_a_variance_off_by_5_percent_is_rejected(wrong, bits):
    # The variance of 200,000 values has a standard error of 0.32 %: 5 % are 15 of them.
    assert p_value(skellam_noise(200_000, 40.5, rng=bits), 40.5 * wrong) < FALSE_ALARM


def test_rounded_gaussian_noise_of_the_same_variance_is_rejected(bits):
    """Shares of one vote are this small, and a Gaussian is not their law."""
    generator = np.random.default_rng(1)
    rounded = np.rint(generator.normal(scale=0.7, size=200_000))
    assert p_value(rounded, 0.49) < FALSE_ALARM
    assert p_value(skellam_noise(200_000, 0.49, rng=bits), 0.49) > FALSE_ALARM


def test_shares_add_up_to_noise_of_the_summed_variance(bits):
    shares = skellam_noise(50 * 40_000, 0.81, rng=bits).reshape(50, -1)
    assert p_value(shares.sum(axis=0), 40.5) > FALSE_ALARM


def exact_distribution_function(value: int, mean: float):
    with mp.workprec(400):
        return mp.gammainc(value + 1, mean, mp.inf, regularized=True)


@pytest.mark.parametrize("mean", [0.005, 0.245, 20.25, 1_500.0, LARGEST_VARIANCE / 2])
def test_tables_are_well_within_the_error_that_is_allowed_for(mean):
    table = skellam._distribution_function(mean)
    values = np.unique(np.linspace(0, table.size - 2, 60).astype(int))
    with mp.workprec(400):
        off = max(abs(exact_distribution_function(int(k), mean) - mp.mpf(float(table[k])))
                  for k in values)  # fmt: skip
    assert off < ERROR / 2
    assert table[-1] == 2.0 and 1 - table[-2] < 1e-15


@pytest.mark.parametrize("mean", [0.245, 20.25])
@pytest.mark.parametrize("value", [0, 1, 5, 30, 60])
def test_a_uniform_number_beside_a_boundary_is_decided_to_its_last_bit(mean, value):
    """U lies beside a chance by one part in 2**80 of what is left: no float64 could tell."""
    with mp.workprec(600):
        left = mp.gammainc(value + 1, 0, mean, regularized=True)  # beyond `value`
        boundary = 1 - Fraction(int(mp.floor(mp.ldexp(left, 560))), 1 << 560)
    for side, expected in ((-1, value), (1, value + 1)):
        number = boundary + side * (1 - boundary) / 2**80
        assert poisson_numbers(1, mean, rng=GivenBits(number)).tolist() == [expected]


@pytest.mark.parametrize("variance", [0.0, -1.0, float("nan"), float("inf"), 20_001.0])
def test_other_variances_are_refused(variance):
    with pytest.raises(ParameterError):
        skellam_noise(1, variance, rng=secure())
