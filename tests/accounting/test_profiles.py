from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from dpal.accounting import pld
from dpal.accounting.events import NoisyScores, NoisyThreshold, PhaseExposure
from dpal.accounting.profiles import Grid, PrivacyProfile, lossless_profile, pointwise_maximum
from dpal.accounting.single_step_curves import Direction
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

GRID = Grid(1e-3, -8192, 16384)


def composed(*events, grid: Grid = GRID) -> PrivacyProfile:
    return pld.compose(events, grid=grid, adjacency=Adjacency.ZERO_OUT, direction=Direction.REMOVE)


SMALL = composed(PhaseExposure(steps=20, sample_rate=0.3, noise_multiplier=2.0))
LARGE = composed(PhaseExposure(steps=1, sample_rate=0.05, noise_multiplier=0.5))
epsilons = st.floats(-12, 12)


@given(epsilons)
def test_the_worst_of_profiles_is_the_larger_one_everywhere(epsilon):
    larger = max(SMALL.delta(epsilon), LARGE.delta(epsilon))
    assert larger - 1e-12 <= pointwise_maximum([SMALL, LARGE]).delta(epsilon) <= larger + 1e-6
    # The two cross, so neither is the worst one by itself.
    assert SMALL.delta(0.5) > LARGE.delta(0.5)
    assert SMALL.delta(4.0) < LARGE.delta(4.0)


@settings(deadline=None)
@given(st.floats(1e-9, 0.5))
def test_epsilon_and_delta_are_inverse(delta):
    epsilon = SMALL.epsilon(delta)
    assert SMALL.delta(epsilon) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert SMALL.delta(epsilon * (1 - 1e-6)) > delta * (1 - 1e-9)


@given(st.floats(-7, 7), st.floats(1e-4, 0.5))
def test_profiles_fall(epsilon, step):
    assert SMALL.delta(epsilon + step) <= SMALL.delta(epsilon) + 1e-15


@given(st.floats(-7, 7))
def test_between_grid_points_a_profile_is_an_upper_bound(epsilon):
    sparse = PrivacyProfile(Grid(0.064, -128, 256), SMALL.at(0.064 * np.arange(-128.0, 128.0)))
    assert sparse.delta(epsilon) >= SMALL.delta(epsilon) - 1e-12


def test_beyond_its_grid_a_profile_still_bounds():
    assert SMALL.delta(100.0) == SMALL.deltas[-1]
    for epsilon in (-9.0, -20.0, -500.0):
        assert 1 - math.exp(epsilon) - 1e-12 <= SMALL.delta(epsilon) <= 1.0
    lost = PrivacyProfile(GRID, np.maximum(lossless_profile(GRID).deltas, 0.01))
    assert lost.epsilon(0.009) == math.inf


@pytest.mark.parametrize("loss", [-0.7, 0.0, 1.3])
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_an_outcome_before_shifts_and_scales(share, loss):
    for epsilon in (0.0, 0.5, 3.0):
        expected = share * SMALL.delta(epsilon - loss)
        assert SMALL.scaled(share, loss).delta(epsilon) == approx(expected, rel=1e-5)


def test_outcomes_that_lose_nothing_mix_to_the_average():
    mixed = SMALL.scaled(0.25, 0.0).plus(LARGE.scaled(0.75, 0.0))
    assert mixed.deltas == approx(0.25 * SMALL.deltas + 0.75 * LARGE.deltas)


@pytest.mark.parametrize("event", [NoisyScores(epsilon=0.8), NoisyThreshold(noise_multiplier=2.0)])
def test_a_release_before_is_a_release_composed(event):
    """Convolving curves is composing by transforms: two ways to the same number."""
    step = PhaseExposure(steps=20, sample_rate=0.3, noise_multiplier=2.0)
    losses = pld.discretise(
        event.composition()[0],
        interval=GRID.interval,
        adjacency=Adjacency.ZERO_OUT,
        direction=Direction.REMOVE,
    )
    before = SMALL.after(losses.masses, losses.first, losses.infinite)
    together = composed(step, event)
    for epsilon in (0.0, 1.0, 2.0, 4.0):
        assert before.delta(epsilon) == approx(together.delta(epsilon), rel=1e-6, abs=1e-9)


def test_a_chance_of_failure_stays():
    raised = SMALL.raised(0.01)
    assert raised.delta(6.0) == approx(0.01, abs=1e-5)
    assert raised.deltas.max() == 1.0
    assert raised.epsilon(0.009) == math.inf


def test_nothing_is_a_perfect_mechanism():
    assert lossless_profile(GRID).epsilon(1e-12) == 0.0
    assert lossless_profile(GRID).delta(0.0) == 0.0
    assert lossless_profile(GRID).delta(-1.0) == approx(-math.expm1(-1.0), rel=1e-6)


@pytest.mark.parametrize("size", [1, 3, 1000, 1 << 22])
def test_grids_are_powers_of_two_that_fit_into_memory(size):
    with pytest.raises(ParameterError, match="too large"):
        Grid(0.01, 0, size)
