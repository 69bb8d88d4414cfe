"""Tests of noise that are shown to work: the right sampler passes, a wrong one is caught.

The bit source repeats, so each test passes or fails always. Had it been drawn afresh, a
test would reject a right sampler with the chance FALSE_ALARM, and a wrong one would
escape with the chance stated beside it. Phi is the standard normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from dpal.accounting.events import LAPLACE_GRID, NoisyScores
from dpal.acquisition.selection import select
from dpal.errors import ParameterError
from dpal.mechanisms.baseline_mechanisms import GaussianScores, LaplaceScores, keys
from dpal.mechanisms.discrete_laplace import laplace_noise
from dpal.mechanisms.gaussian import standard_normal
from dpal.mechanisms.randomized_response import randomized_responses
from dpal.planning.selection_steps import NoisyRanking
from dpal.randomness import BitSource
from tests.conftest import RepeatableBits

FALSE_ALARM = 1e-6
TWO_SIDED = -stats.norm.ppf(FALSE_ALARM / 2)  # 4.89 standard errors
ONE_SIDED = -stats.norm.ppf(FALSE_ALARM)  # 4.75


# -- (a) the scale of Laplace noise ------------------------------------------------------


def scale_error(noise: np.ndarray, epsilon: float) -> float:
    """Standard errors between the mean size of discrete Laplace noise and its promise."""
    q = math.exp(-epsilon / LAPLACE_GRID)
    mean, square = 2 * q / (1 - q * q), 2 * q / (1 - q) ** 2
    return (np.abs(noise).mean() - mean) / math.sqrt((square - mean**2) / noise.size)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_laplace_scale_off_by_5_percent_is_caught(epsilon, bits):
    # |noise| / scale has mean 1 and standard deviation 1, so 60,000 values have a standard
    # error of 0.41 %: 5 % are 12.2 of them, and escape with chance Phi(4.89 - 12.2 / 1.05),
    # below 1e-11.
    def error(promised: float) -> float:
        return scale_error(laplace_noise(60_000, epsilon, rng=bits), promised)

    assert abs(error(epsilon)) < TWO_SIDED
    assert error(epsilon * 1.05) > TWO_SIDED  # the noise is too large
    assert error(epsilon * 0.95) < -TWO_SIDED  # the noise is too small


@pytest.mark.slow
def test_a_zero_that_is_counted_twice_is_caught(bits):
    # Sign times size gives 0 as both +0 and -0: next to 1 it then has e^0.69 times its
    # chance. At epsilon 64 that is 4.9e-4, or 977 of two million: a standard deviation of
    # 31.2, and as many of them too much. It escapes with chance Phi((4.9 - 31) / 1.4).
    n, q = 2_000_000, math.exp(-64 / LAPLACE_GRID)
    chance = (1 - q) / (1 + q)

    def error(zeros: int) -> float:
        return (zeros - n * chance) / math.sqrt(n * chance)

    zeros = int((laplace_noise(n, 64.0, rng=bits) == 0).sum())
    assert abs(error(zeros)) < TWO_SIDED
    assert error(2 * zeros) > TWO_SIDED


# -- (b) a missing clip ------------------------------------------------------------------


def excess_of_ratio(of_high: np.ndarray, of_low: np.ndarray, epsilon: float) -> float:
    """Standard errors by which P(key >= t | high) exceeds e^epsilon P(key >= t | low).

    The set is where the ratio is largest: upwards of the highest key without noise.
    """
    growth, top = math.exp(epsilon), 1.25 * LAPLACE_GRID
    high, low = np.mean(of_high >= top), np.mean(of_low >= top)
    variance = high * (1 - high) / of_high.size + growth**2 * low * (1 - low) / of_low.size
    return float((high - growth * low) / math.sqrt(variance))


def test_a_missing_clip_shows_in_the_likelihood_ratio(bits):
    # Width 0.8, epsilon 2, scores 1 and 0. With the clip the ratio at t = 1.25 LAPLACE_GRID is
    # e^2 exactly (0.303 to 0.041). Without it 0.5 lies above t, 0.197 more than allowed:
    # the standard error is sqrt((0.25 + e^4 0.041 x 0.959) / 40,000) = 0.0077, so that
    # is 25 of them.
    epsilon, n = 2.0, 40_000
    mechanism = LaplaceScores(epsilon=epsilon, width=0.8)
    low = keys(mechanism, np.zeros(n), rng=bits)
    clipped = keys(mechanism, np.ones(n), rng=bits)
    unclipped = round(LAPLACE_GRID / 0.8) + laplace_noise(n, epsilon, rng=bits)
    assert excess_of_ratio(clipped, low, epsilon) < ONE_SIDED
    assert excess_of_ratio(unclipped, low, epsilon) > ONE_SIDED


@pytest.mark.parametrize("score", [-1e-9, 0.8 + 1e-9, math.nan, math.inf])
def test_the_campaign_refuses_a_score_that_nobody_clipped(score, bits):
    scored = [(np.arange(3), np.array([0.1, score, 0.2]))]
    with pytest.raises(ParameterError, match="outside of"):
        select(NoisyRanking(scores=NoisyScores(epsilon=1.0)), scored, 1, width=0.8, rng=bits)


# -- (c) outputs that only one input can have --------------------------------------------


def float_laplace(uniform: float, location: float, scale: float) -> float:
    """What numpy computes from its 53-bit uniform number, in the same operations."""
    if uniform >= 0.5:
        return location - scale * math.log(2 - uniform - uniform)
    return location + scale * math.log(uniform + uniform)


def is_reachable(value: float, location: float, scale: float) -> bool:
    """Whether any uniform number k / 2**53 gives exactly this value.

    Here one step of k moves the result by at least half a unit in its last place, and the
    inverse is off by a few steps at most: 16 on each side are more than enough.
    """
    distance = (value - location) / scale
    share = math.exp(distance) / 2 if distance < 0 else 1 - math.exp(-distance) / 2
    nearest = round(share * 2**53)
    candidates = range(max(1, nearest - 16), min(2**53, nearest + 17))
    return any(float_laplace(k / 2**53, location, scale) == value for k in candidates)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_most_float_laplace_outputs_betray_their_input(epsilon):
    # The flaw that the grid is there for (Mironov, 2012): 83 % of the outputs of score 1
    # are impossible for score 0. With 1,000 of them the standard error is 1.2 %.
    generator = np.random.Generator(np.random.PCG64(7))
    outputs = generator.laplace(1.0, 1 / epsilon, 1_000).tolist()
    assert all(is_reachable(value, 1.0, 1 / epsilon) for value in outputs)
    impossible = np.mean([not is_reachable(value, 0.0, 1 / epsilon) for value in outputs])
    assert impossible > 0.7


def unseen_share(noise: Callable[[int], np.ndarray], scale: float) -> float:
    """Share of the outputs of input 1 within 3 scales that input 0 never gave."""
    of_one, of_zero = 1 + noise(100_000), noise(1_500_000)
    near = of_one[np.abs(of_one) <= 3 * scale]
    return float(np.mean(~np.isin(near, of_zero)))


def test_no_output_of_the_grid_betrays_its_input(bits):
    # At epsilon 64 the scale is 1,024 steps. Each of the 6,145 whole numbers within three
    # scales has a chance of at least e^-3 / 2,048 = 2.4e-5; 1.5 million draws miss a given
    # one with chance exp(-36), any of them with 1e-12.
    def exact(count: int) -> np.ndarray:
        return laplace_noise(count, 64.0, rng=bits)

    def every_other(count: int) -> np.ndarray:  # a grid twice as coarse as that of the scores
        return 2 * (exact(count) // 2)

    assert unseen_share(exact, LAPLACE_GRID / 64) == 0
    assert unseen_share(every_other, LAPLACE_GRID / 64) == 1


# -- (d) a biased bit --------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [True, False])
def test_a_rate_off_by_1_percent_is_caught(wanted, bits):
    # Two million answers at 0.37: standard error 0.00034, a bias of 0.0037 is 10.8 of them
    # and escapes with chance Phi(4.89 - 10.8) = 2e-9.
    n, rate = 2_000_000, 0.37

    def error(drawn: float) -> float:
        rates = {"above": drawn, "below": 0.1} if wanted else {"above": 0.9, "below": drawn}
        said = randomized_responses(np.full(n, wanted), **rates, rng=bits)
        return (said.mean() - rate) / math.sqrt(rate * (1 - rate) / n)

    assert abs(error(rate)) < TWO_SIDED
    assert error(rate * 1.01) > TWO_SIDED
    assert error(rate * 0.99) < -TWO_SIDED


# -- (e) the scale and the shape of Gaussian noise ---------------------------------------

N_GAUSSIAN = 1_000_000


def std_error(noise: np.ndarray) -> float:
    """Standard errors between the root mean square and 1; each is 1 / sqrt(2 n)."""
    return (math.sqrt(np.mean(noise**2)) - 1) * math.sqrt(2 * noise.size)


def shape_p_value(noise: np.ndarray) -> float:
    """Chi-square against the normal law, in 64 bins of equal chance."""
    edges = stats.norm.ppf(np.arange(1, 64) / 64)
    counts = np.bincount(np.searchsorted(edges, noise), minlength=64)
    return float(stats.chisquare(counts).pvalue)


def score_noise(*, rng: BitSource) -> np.ndarray:
    """The noise of the compared mechanism, in units of its own promise."""
    mechanism = GaussianScores(epsilon=2, delta=1e-5, width=0.8)
    of_zero = keys(mechanism, np.zeros(N_GAUSSIAN), rng=rng)
    return of_zero / (LAPLACE_GRID * mechanism.noise_multiplier)


def training_noise(*, rng: BitSource) -> np.ndarray:
    return standard_normal(N_GAUSSIAN, rng=rng)


def sum_of_twelve(*, rng: BitSource) -> np.ndarray:
    """The textbook shortcut for a normal value: mean 0, standard deviation 1, no tails."""
    total = np.zeros(N_GAUSSIAN)
    for _ in range(12):
        total += rng.words(N_GAUSSIAN) * 2.0**-64
    return total - 6


@pytest.mark.parametrize("sampler", [training_noise, score_noise])
def test_a_gaussian_scale_off_by_1_percent_is_caught(sampler, bits):
    # The standard error is 0.071 %: 1 % is 14.1 of them, and escapes with chance
    # Phi(4.89 - 14.1 / 1.01), below 1e-18.
    noise = sampler(rng=bits)
    assert abs(std_error(noise)) < TWO_SIDED
    assert std_error(1.01 * noise) > TWO_SIDED
    assert std_error(0.99 * noise) < -TWO_SIDED


@pytest.mark.parametrize("sampler", [training_noise, score_noise])
def test_gaussian_noise_has_its_shape(sampler):
    noise = sampler(rng=RepeatableBits(5))
    assert shape_p_value(noise) > FALSE_ALARM
    assert stats.kstest(noise, "norm").pvalue > FALSE_ALARM


def test_a_shape_without_tails_is_caught(bits):
    # Excess kurtosis -0.1 with the right variance: the density is off by the share
    # 0.1 / 24 (x^4 - 6 x^2 + 3), whose square has mean 24 / 24^2 x 0.01 = 4.2e-4. A million
    # values give chi-square a surplus of up to 417 over its 63 degrees of freedom, of which
    # the wide outer bins hide a part; 1e-6 lies at 127.
    noise = sum_of_twelve(rng=bits)
    assert abs(std_error(noise)) < TWO_SIDED  # the scale alone does not show it
    assert shape_p_value(noise) < FALSE_ALARM
