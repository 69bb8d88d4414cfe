"""What each compared mechanism costs is what its event says; its keys follow its law."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.accounting.events import LAPLACE_GRID
from dpal.errors import ParameterError
from dpal.mechanisms.baseline_mechanisms import (
    ExponentialWeights,
    GaussianScores,
    LaplaceScores,
    SubsampledGaussianScores,
    SymmetricResponse,
    dp_event_of,
    keys,
)

EPSILON, DELTA = 0.5, 1e-5
MECHANISMS = [
    LaplaceScores(epsilon=EPSILON, width=1),
    LaplaceScores(epsilon=EPSILON, width=0.8),
    GaussianScores(epsilon=EPSILON, delta=DELTA, width=0.8),
    SubsampledGaussianScores(epsilon=EPSILON, delta=DELTA, width=1, sample_rate=0.2),
    SubsampledGaussianScores(epsilon=EPSILON, delta=DELTA, width=1, sample_rate=1),
    ExponentialWeights(epsilon=EPSILON, width=0.8, pool=40_000, selected=10_000),
    SymmetricResponse(epsilon=EPSILON, threshold=0.3),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_one_selection_costs_what_was_asked_for_and_hardly_less(mechanism):
    accountant = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL)
    accountant.compose(dp_event_of(mechanism))
    spent = accountant.get_epsilon(DELTA)
    # The accountant rounds losses up, by one step of its grid (1e-4) at most.
    assert 0.99 * EPSILON <= spent <= EPSILON + 1e-4


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_higher_scores_rank_higher_on_average(mechanism, bits):
    low, high = (keys(mechanism, np.full(50_000, score), rng=bits) for score in (0.0, 0.8))
    spread = math.sqrt((np.var(low) + np.var(high)) / low.size)
    assert np.mean(high) - np.mean(low) > 5 * spread


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
@pytest.mark.parametrize("score", [-0.01, 1.01, math.nan])
def test_a_score_outside_of_the_range_is_refused(mechanism, score, bits):
    with pytest.raises(ParameterError, match="score lies"):
        keys(mechanism, np.array([0.5, score]), rng=bits)


def test_an_unknown_mechanism_is_refused(bits):
    with pytest.raises(ParameterError, match="registered sampler"):
        keys("laplace", np.zeros(1), rng=bits)
    with pytest.raises(ParameterError, match="dp-accounting event"):
        dp_event_of("laplace")


@settings(deadline=None)
@given(st.floats(1e-3, 20.0), st.floats(1e-12, 0.1))
def test_the_gaussian_ends_on_the_private_side(epsilon, delta):
    noise_multiplier = GaussianScores(epsilon=epsilon, delta=delta, width=1).noise_multiplier
    # The margin of 1e-8 in the search is far above the rounding of the oracle.
    spent = GaussianPrivacyLoss(noise_multiplier).get_delta_for_epsilon(epsilon)
    assert spent <= delta
    assert GaussianPrivacyLoss(noise_multiplier / 1.0001).get_delta_for_epsilon(epsilon) > delta


def test_the_gaussian_is_the_known_one():
    # Root of the curve (Balle & Wang, 2018, Thm. 8) at (1, 1e-5), found with 40 digits.
    # The classic sqrt(2 ln(1.25 / delta)) / epsilon would ask for 4.84.
    found = GaussianScores(epsilon=1, delta=1e-5, width=1).noise_multiplier
    assert 0 <= found / 3.7306316348160 - 1 < 1e-7


def test_keys_of_a_subsample_are_a_mixture(bits):
    mechanism = SubsampledGaussianScores(epsilon=16, delta=1e-3, width=1, sample_rate=0.2)
    n, noise = 400_000, mechanism.noise_multiplier
    drawn = keys(mechanism, np.ones(n), rng=bits) / LAPLACE_GRID
    variance = noise**2 + 0.2 * 0.8
    assert abs(drawn.mean() - 0.2) < 5 * math.sqrt(variance / n)
    assert drawn.var() == pytest.approx(variance, rel=0.02)
    assert noise < 0.25  # little enough for the two parts to be told apart below
    # A share q Phi(-1/2s) + (1 - q) Phi(1/2s) of the keys lies below 1/2.
    inner = 0.5 * math.erfc(0.5 / noise / math.sqrt(2))
    share = 0.2 * inner + 0.8 * (1 - inner)
    assert abs(np.mean(drawn < 0.5) - share) < 5 * math.sqrt(share * (1 - share) / n)


def order_chance(weights: tuple[float, ...], order: tuple[int, ...]) -> float:
    """Chance to draw `order` one by one, without replacement."""
    chance, left = 1.0, sum(weights)
    for i in order:
        chance *= weights[i] / left
        left -= weights[i]
    return chance


@pytest.mark.parametrize(("epsilon", "selected"), [(0.5, 1), (0.5, 4), (2.0, 2), (2.0, 4)])
def test_exponential_weights_lose_what_they_say(epsilon, selected):
    """All orders of five records, other scores at the ends of their range."""
    pool, high = 5, math.exp(epsilon)
    losses = [
        math.log(order_chance((high, *others), order) / order_chance((1.0, *others), order))
        for others in itertools.product((1.0, high), repeat=pool - 1)
        for order in itertools.permutations(range(pool), selected)
    ]
    mechanism = ExponentialWeights(epsilon=epsilon, width=1, pool=pool, selected=selected)
    worst = max(map(abs, losses))
    assert worst <= mechanism.loss + 1e-12
    # Passed over is exact; being drawn first costs epsilon less the small first ratio.
    if mechanism.loss > epsilon:
        assert worst == pytest.approx(mechanism.loss)


def test_exponential_weights_draw_by_their_weights(bits):
    n, scores = 200_000, np.array([0.0, 0.4, 0.8])
    mechanism = ExponentialWeights(epsilon=2, width=0.8, pool=3, selected=1)
    drawn = keys(mechanism, np.tile(scores, n), rng=bits).reshape(n, 3).argmax(axis=1)
    chances = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    for i, chance in enumerate(chances):
        assert abs((drawn == i).sum() - n * chance) < 5 * math.sqrt(n * chance * (1 - chance))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (LaplaceScores, {"epsilon": 0.0, "width": 1}),
        (LaplaceScores, {"epsilon": 1.0, "width": 0.0}),
        (LaplaceScores, {"epsilon": 1.0, "width": 1.1}),
        (GaussianScores, {"epsilon": 1.0, "width": 1, "delta": 0.0}),
        (
            SubsampledGaussianScores,
            {"epsilon": 1.0, "width": 1, "delta": 1e-3, "sample_rate": 1e-3},
        ),
        (ExponentialWeights, {"epsilon": 1.0, "width": 1, "pool": 3, "selected": 3}),
        (SymmetricResponse, {"epsilon": math.nan, "threshold": 0.5}),
        (SymmetricResponse, {"epsilon": 1.0, "threshold": 1.5}),
    ],
)
def test_impossible_parameters_are_refused(kind, values):
    with pytest.raises(ParameterError, match="must be"):
        kind(**values)


def test_events_name_their_mechanism():
    kinds = [type(dp_event_of(mechanism)) for mechanism in MECHANISMS]
    assert kinds == [
        dp_event.DiscreteLaplaceDpEvent,
        dp_event.DiscreteLaplaceDpEvent,
        dp_event.GaussianDpEvent,
        dp_event.PoissonSampledDpEvent,
        dp_event.PoissonSampledDpEvent,
        dp_event.DiscreteLaplaceDpEvent,
        dp_event.RandomizedResponseDpEvent,
    ]
