"""Bounds against printed figures, against each other, and against mechanisms that keep them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from dpal.accounting.events import PhaseExposure
from dpal.accounting.pld import CERTIFY, compose, fit_grid
from dpal.accounting.single_step_curves import Direction
from dpal.audit.lower_bound import (
    AttackRates,
    MembershipGuesses,
    best_bound,
    chance_of,
    epsilon_if_gaussian,
    epsilon_in_one_run,
    epsilon_of_gaussian,
    epsilon_of_rates,
    epsilon_of_rates_if_gaussian,
    guess_membership,
    of_gaussian,
    of_profile,
    rates_refute,
    refutes,
)
from dpal.errors import ParameterError
from dpal.privacy import Adjacency
from tests.variants import quick_and_slow

DELTA, ERROR = 1e-5, 0.05
SHARES = (0.02, 0.04, 0.06, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.0)


def shift_of(epsilon: float) -> float:
    return brentq(lambda shift: epsilon_of_gaussian(shift, delta=DELTA) - epsilon, 1e-3, 10)


def attacks(epsilon: float, canaries: int, *, runs: int = 3) -> list[list[MembershipGuesses]]:
    """Guesses from ideal scores, which are normal, for several numbers of them."""
    generator = np.random.default_rng(20230515)
    found = []
    for _ in range(runs):
        included = generator.random(canaries) < 0.5
        scores = generator.normal(size=canaries) + shift_of(epsilon) * included
        found.append([guess_membership(scores, included, count=int(s * canaries)) for s in SHARES])
    return found


def typical(bound, tried: list[list[MembershipGuesses]]) -> float:
    """Mean over runs of the best over numbers of guesses: the oracle's choice."""
    return float(np.mean([max(bound(g, delta=DELTA, error=ERROR) for g in one) for one in tried]))


@pytest.mark.parametrize(
    ("epsilon", "canaries", "one_run", "gaussian"),
    # Measured apart from this code, by the same formulas: ideal scores, the best number of
    # guesses. A single run scatters by about 0.3.
    quick_and_slow(
        [(1, 1000, 0.42, 0.62), (8, 1000, 2.87, 4.54)],
        [
            (1, 1000, 0.42, 0.62),
            (3, 1000, 1.09, 1.73),
            (8, 1000, 2.87, 4.54),
            (8, 5000, 3.57, 5.22),
        ],
    ),
)
def test_bounds_are_those_of_the_table(epsilon, canaries, one_run, gaussian):
    tried = attacks(epsilon, canaries)
    assert typical(epsilon_in_one_run, tried) == pytest.approx(one_run, abs=0.35)
    assert typical(epsilon_if_gaussian, tried) == pytest.approx(gaussian, abs=0.6)


@pytest.mark.parametrize(("made", "most"), [(100, 3.49), (300, 4.60), (1000, 5.81)])
def test_perfect_guesses_prove_no_more_than_their_number_allows(made, most):
    perfect = MembershipGuesses(canaries=made, made=made, correct=made)
    assert epsilon_in_one_run(perfect, delta=0.0, error=ERROR) == pytest.approx(most, abs=0.005)
    # q^r = 0.05 for q = e^eps / (1 + e^eps), by hand.
    right = ERROR ** (1 / made)
    by_hand = math.log(right / (1 - right))
    assert epsilon_in_one_run(perfect, delta=0.0, error=ERROR) == pytest.approx(by_hand, rel=1e-6)


def test_coin_tosses_prove_nothing():
    half = MembershipGuesses(canaries=1000, made=400, correct=200)
    assert epsilon_in_one_run(half, delta=DELTA, error=ERROR) == 0.0
    assert epsilon_if_gaussian(half, delta=DELTA, error=ERROR) == 0.0
    assert chance_of(half, epsilon=0.0, delta=0.0) > 0.5


def test_more_delta_proves_less():
    guesses = MembershipGuesses(canaries=1000, made=200, correct=190)
    bounds = [epsilon_in_one_run(guesses, delta=d, error=ERROR) for d in (0.0, 1e-5, 1e-3)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[2]


def test_bounds_stay_below_the_truth_of_a_gaussian_mechanism():
    # 200 runs at an error of 5 %: more than 25 exceedances have a chance below 1e-4.
    truth, generator, above = 2.0, np.random.default_rng(5), 0
    for _ in range(200):
        included = generator.random(400) < 0.5
        scores = generator.normal(size=400) + shift_of(truth) * included
        tried = guess_membership(scores, included, count=80)
        above += epsilon_if_gaussian(tried, delta=DELTA, error=ERROR) > truth
    assert above <= 25


def test_a_bound_reaches_above_a_claim_that_is_too_small():
    tried = attacks(8, 1000, runs=1)[0]
    assert best_bound(lambda g, e: epsilon_if_gaussian(g, delta=DELTA, error=e), tried, ERROR) > 2.0


def profiles(noise: float) -> list:
    event = PhaseExposure(steps=100, sample_rate=0.3, noise_multiplier=noise)
    grid = fit_grid([[event]], delta=DELTA, adjacency=Adjacency.ZERO_OUT, accuracy=CERTIFY)
    return [
        compose([event], grid=grid, adjacency=Adjacency.ZERO_OUT, direction=one)
        for one in Direction
    ]


def test_a_profile_gives_the_trade_off_of_what_was_composed():
    """One Gaussian step without sampling is the Gaussian mechanism itself."""
    event = PhaseExposure(steps=1, sample_rate=1.0, noise_multiplier=0.5)
    grid = fit_grid([[event]], delta=DELTA, adjacency=Adjacency.ZERO_OUT, accuracy=CERTIFY)
    composed = [
        compose([event], grid=grid, adjacency=Adjacency.ZERO_OUT, direction=one)
        for one in Direction
    ]
    claimed, exact = of_profile(*composed), of_gaussian(2.0)
    for x in (0.01, 0.1, 0.5, 0.9, 0.999):
        assert claimed(x) == pytest.approx(exact(x), rel=0.02, abs=1e-4)
        assert claimed(x) <= exact(x) + 1e-12  # on the private side: a claim of less privacy


def test_a_claimed_curve_is_refuted_by_less_noise_only():
    # About Gaussian with shift sqrt(100) 0.3 / noise.
    generator = np.random.default_rng(3)
    included = generator.random(2000) < 0.5

    def run(noise: float) -> MembershipGuesses:
        shift = 3.0 / noise
        scores = generator.normal(size=2000) + shift * included
        return guess_membership(scores, included, count=300)

    claim = of_profile(*profiles(4.0))
    assert not refutes(run(4.0), claim, error=1e-5)
    assert refutes(run(1.0), claim, error=1e-5)


def rates(alarms: int, misses: int) -> AttackRates:
    return AttackRates(alarms=alarms, absent=1000, misses=misses, present=1000)


def test_two_worlds_bound_a_test_that_is_right_nearly_always():
    # Clopper and Pearson: an upper bound of 1 - 0.025^(1/1000) on both rates.
    most = 1 - (ERROR / 2) ** (1 / 1000)
    bound = epsilon_of_rates(rates(0, 0), delta=0.0, error=ERROR)
    assert bound == pytest.approx(math.log((1 - most) / most), rel=1e-9)
    assert epsilon_of_rates(rates(500, 500), delta=0.0, error=ERROR) == 0.0
    assert epsilon_of_rates_if_gaussian(rates(500, 500), delta=DELTA, error=ERROR) == 0.0


def test_two_worlds_of_a_gaussian_mechanism():
    # The best test of a shift m is wrong with chance Phi(-m / 2) either way. Of 1,000 runs
    # this is known to about 5 % of m; the table of bounds in two worlds has 6.44 for 8.
    shift = shift_of(8.0)
    wrong = round(1000 * ndtr(-shift / 2))
    bound = epsilon_of_rates_if_gaussian(rates(wrong, wrong), delta=DELTA, error=ERROR)
    assert bound == pytest.approx(6.44, abs=0.6)
    claim = of_gaussian(shift)
    assert not rates_refute(rates(wrong, wrong), claim, error=1e-6)
    halved = round(1000 * ndtr(-shift))  # half of the noise is twice the shift
    assert rates_refute(rates(halved, halved), claim, error=1e-6)


def test_counts_that_contradict_themselves_are_refused():
    with pytest.raises(ParameterError):
        MembershipGuesses(canaries=10, made=11, correct=5)
    with pytest.raises(ParameterError):
        MembershipGuesses(canaries=10, made=4, correct=5)
