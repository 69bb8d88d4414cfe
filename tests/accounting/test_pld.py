from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pytest import approx
from scipy.special import ndtr

from dpal.accounting import pld, rdp
from dpal.accounting.events import NoisyScores, NoisyThreshold, PhaseExposure
from dpal.accounting.profiles import PrivacyProfile
from dpal.accounting.single_step_curves import Direction
from dpal.errors import ParameterError
from dpal.privacy import Adjacency
from tests.accounting.mixtures import (
    WIDTH,
    affordable,
    answers,
    by_dp_accounting,
    mixtures,
    ours,
)

adjacencies = st.sampled_from(list(Adjacency))
deltas = st.sampled_from([1e-3, 1e-5, 1e-6])


def profile(events, direction=Direction.REMOVE, *, delta=1e-5, adjacency=Adjacency.ZERO_OUT):
    grid = pld.fit_grid([events], delta=delta, adjacency=adjacency, accuracy=pld.CERTIFY)
    return pld.compose(events, grid=grid, adjacency=adjacency, direction=direction)


def agrees(events, answer, delta, adjacency) -> None:
    assume(affordable(events, adjacency))
    try:
        mine = ours(events, answer, delta=delta, adjacency=adjacency)
    except ParameterError as refusal:
        # Hardly any training beside another release of large loss: no grid is as fine and as wide.
        others = [event for event in events if not isinstance(event, PhaseExposure)]
        assert (answer is not None or others) and "too large" in str(refusal)
        assume(False)
    theirs = by_dp_accounting(events, answer, delta=delta, adjacency=adjacency)
    # Both engines only ever overstate, so ours may be lower by as much as dp-accounting's grid
    # adds: its width for each discrete release, and width^2 / 6 to the variance of each step.
    discrete = (answer is not None) + sum(isinstance(one, NoisyScores) for one in events)
    least = min(one.composition()[0].spread for one in events if isinstance(one, PhaseExposure))
    theirs_error = WIDTH * (1 + discrete) + theirs * WIDTH**2 / (6 * least**2)
    assert -theirs_error <= mine - theirs <= 1e-3


def sweep(examples: int):
    """Histories of subsampled Gaussians, thresholds, scores and answers, always the same ones."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


@sweep(3)
@given(mixtures, st.one_of(st.none(), answers()), deltas, adjacencies)
def test_within_a_thousandth_of_dp_accounting(events, answer, delta, adjacency):
    agrees(events, answer, delta, adjacency)


@pytest.mark.slow
@sweep(300)
@given(mixtures, st.one_of(st.none(), answers()), deltas, adjacencies)
def test_within_a_thousandth_of_dp_accounting_everywhere(events, answer, delta, adjacency):
    agrees(events, answer, delta, adjacency)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delta", "most"),
    [(1e-5, 1e-4), (1e-6, 1e-3), (1e-7, 5e-3)],
)
def test_rounding_only_adds_at_tiny_deltas(delta, most):
    """A step's masses are differences of its curve, and rounding below 0 is raised to 0.

    That adds up to about 1e-9 to delta, which shows in epsilon once delta is below 1e-6.
    """
    trained = [
        PhaseExposure(steps=1, sample_rate=0.0037, noise_multiplier=0.58),
        PhaseExposure(steps=3, sample_rate=0.026, noise_multiplier=1.01),
    ]
    adjacency = Adjacency.REPLACE_ONE
    mine = ours(trained, None, delta=delta, adjacency=adjacency)
    theirs = by_dp_accounting(trained, None, delta=delta, adjacency=adjacency)
    assert -WIDTH <= mine - theirs <= most


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("direction", Direction)
def test_a_gaussian_is_the_closed_form(sigma, direction):
    # Balle & Wang (2018), Thm. 8; steps without subsampling compose to one Gaussian.
    events = [PhaseExposure(steps=9, sample_rate=1.0, noise_multiplier=3 * sigma)]
    found = profile(events, direction)
    for epsilon in (0.5, 1.0, 2.0, 5.0):
        exact = ndtr(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * ndtr(
            -0.5 / sigma - epsilon * sigma
        )
        assert exact <= found.delta(epsilon)
        assert found.delta(epsilon) == approx(exact, rel=2e-2, abs=1e-9)


def test_a_thousand_equal_events_are_one_of_a_thousand_steps():
    """Of the batches of a vote, say. Counted one by one, rounding hid more than this delta."""
    noise = 2 * math.sqrt(1000)
    many = profile([NoisyThreshold(noise_multiplier=noise)] * 1000, delta=1e-9)
    exact = ndtr(0.25 - 2.912 * 2) - math.exp(2.912) * ndtr(-0.25 - 2.912 * 2)
    assert exact <= many.delta(2.912) <= 1.1 * exact < 1.1e-9


@pytest.mark.parametrize("direction", Direction)
def test_a_fully_sampled_step_and_a_threshold_are_the_same_gaussian(direction):
    step = PhaseExposure(steps=1, sample_rate=1.0, noise_multiplier=1.3)
    threshold = NoisyThreshold(noise_multiplier=1.3)
    for delta in (1e-2, 1e-5):
        one, other = (profile([event], direction).epsilon(delta) for event in (step, threshold))
        assert one == approx(other, abs=1e-4)  # their grids differ


def test_an_overflow_is_added_to_delta():
    smooth = NoisyThreshold(noise_multiplier=2.0)
    failing = replace(smooth, failure_probability=1e-3)
    for epsilon in (0.5, 2.0, 4.0):
        # It happens instead of the rest, so it counts by what the rest leaves of 1.
        added = profile([failing]).delta(epsilon) - profile([smooth]).delta(epsilon)
        assert added == approx(1e-3, rel=1e-2)


@sweep(12)
@given(mixtures, deltas, adjacencies)
def test_never_above_renyi_bounds(events, delta, adjacency):
    assume(affordable(events, adjacency))
    bound = rdp.epsilon_spent(events, delta=delta, adjacency=adjacency)
    assert ours(events, None, delta=delta, adjacency=adjacency) <= bound + 1e-3


@sweep(4)
@given(mixtures, adjacencies)
def test_more_noise_and_fewer_steps_never_cost_more(events, adjacency):
    assume(affordable(events, adjacency))
    cost = ours(events, None, delta=1e-5, adjacency=adjacency)
    first, *rest = events
    noisier = replace(first, noise_multiplier=1.5 * first.noise_multiplier)
    shorter = replace(first, steps=max(1, first.steps // 2))
    for cheaper in (noisier, shorter):
        assert ours([cheaper, *rest], None, delta=1e-5, adjacency=adjacency) <= cost + 1e-3


@sweep(4)
@given(mixtures)
def test_replacing_costs_at_least_as_much_as_blanking(events):
    assume(affordable(events, Adjacency.REPLACE_ONE))
    blanked, replaced = (ours(events, None, delta=1e-5, adjacency=one) for one in Adjacency)
    assert replaced >= blanked - 1e-3


@sweep(7)
@given(mixtures, st.sampled_from(list(Direction)))
def test_clipped_mass_is_never_lost(events, direction):
    """What lies beyond a grid that is far too short is counted as lost, not forgotten."""
    assume(affordable(events, Adjacency.ZERO_OUT))
    grid = pld.fit_grid([events], delta=1e-5, adjacency=Adjacency.ZERO_OUT, accuracy=pld.CERTIFY)
    assume(grid.size >= 64)
    middle = grid.low + grid.size // 2
    short = replace(grid, low=middle - grid.size // 8, size=grid.size // 4)
    full, cut = (
        pld.compose(events, grid=one, adjacency=Adjacency.ZERO_OUT, direction=direction)
        for one in (grid, short)
    )
    assert (cut.deltas >= full.at(short.losses) - 1e-9).all()


def test_chances_of_a_step_add_up_to_one():
    for event in (
        PhaseExposure(steps=1, sample_rate=0.2, noise_multiplier=0.8),
        NoisyScores(epsilon=0.5),
        NoisyThreshold(noise_multiplier=1.0, failure_probability=0.01),
    ):
        for adjacency in Adjacency:
            for direction in Direction:
                losses = pld.discretise(
                    event.composition()[0], interval=1e-3, adjacency=adjacency, direction=direction
                )
                total = losses.masses.sum() + losses.infinite - event.delta
                assert 1 - 1e-12 <= total <= 1 + 1e-6  # rounding only adds


def test_a_coarser_grid_only_costs_more():
    events = [PhaseExposure(steps=400, sample_rate=0.05, noise_multiplier=1.0)]
    costs = []
    for accuracy in (pld.CERTIFY / 4, pld.CERTIFY, pld.SEARCH, 20 * pld.SEARCH):
        grid = pld.fit_grid([events], delta=1e-5, adjacency=Adjacency.ZERO_OUT, accuracy=accuracy)
        composed = pld.compose(
            events, grid=grid, adjacency=Adjacency.ZERO_OUT, direction=Direction.REMOVE
        )
        costs.append(composed.epsilon(1e-5))
    assert costs == sorted(costs)
    assert costs[1] - costs[0] < 1e-4


def test_order_does_not_matter_and_repeating_is_lengthening():
    once = PhaseExposure(steps=300, sample_rate=0.02, noise_multiplier=1.1)
    other = NoisyScores(epsilon=0.3)
    grid = pld.fit_grid(
        [[once, once, other]], delta=1e-5, adjacency=Adjacency.ZERO_OUT, accuracy=pld.CERTIFY
    )

    def epsilon(*events) -> float:
        composed: PrivacyProfile = pld.compose(
            events, grid=grid, adjacency=Adjacency.ZERO_OUT, direction=Direction.REMOVE
        )
        return composed.epsilon(1e-5)

    assert epsilon(once, other, once) == approx(epsilon(other, once, once), abs=1e-9)
    assert epsilon(once, once) == approx(epsilon(replace(once, steps=600)), abs=1e-6)


def test_nothing_done_costs_nothing():
    idle = PhaseExposure(steps=100, sample_rate=0.0, noise_multiplier=1.0)
    assert profile([idle]).epsilon(1e-5) == 0.0
    assert profile([]).epsilon(1e-5) == 0.0


def test_losses_beyond_any_grid_are_refused():
    loud = [PhaseExposure(steps=5000, sample_rate=0.9, noise_multiplier=0.3)]
    with pytest.raises(ParameterError, match="use more noise, or promise a smaller epsilon"):
        profile(loud)


def test_a_step_with_too_many_losses_is_refused_before_it_takes_all_memory():
    seldom = [PhaseExposure(steps=10**8, sample_rate=1e-12, noise_multiplier=0.5)]
    with pytest.raises(ParameterError):
        profile(seldom)


@pytest.mark.parametrize("depth", [1.0, 400.0, 4e4])
def test_powers_of_a_spectrum_are_those_of_numpy(depth):
    """Also where most of them are too small for a float, which is not computed."""
    places = np.linspace(0, 1, 501)
    logs = -depth * places - 746 * places**8 + 40j * places
    assert np.array_equal(pld._exponential(logs), np.exp(logs))


# What the interpreter computes, and what threads beside it do while distributions are composed.
_THREADS = """
import time
from dpal.accounting import pld
from dpal.accounting.events import PhaseExposure
from dpal.accounting.single_step_curves import Direction
from dpal.privacy import Adjacency
events = [PhaseExposure(steps=2000, sample_rate=0.2, noise_multiplier=4.0)]
about = dict(adjacency=Adjacency.ZERO_OUT)
grid = pld.fit_grid([events], delta=1e-6, accuracy=pld.CERTIFY, **about)
pld.compose(events, grid=grid, direction=Direction.REMOVE, **about)
beside, own = time.process_time() - time.thread_time(), time.thread_time()
for _ in range(60):
    pld.compose(events, grid=grid, direction=Direction.REMOVE, **about)
now = time.thread_time()
print(grid.size, (time.process_time() - now - beside) / (now - own))
"""


@pytest.mark.slow
def test_composing_keeps_no_other_thread_busy():
    """Two threads of BLAS that add up a vector spin while they wait: six times the work of one."""
    told = subprocess.run(
        [sys.executable, "-c", _THREADS],
        env={**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert int(told[0]) > 20_000, "BLAS takes several threads for long vectors alone"
    assert float(told[1]) < 0.05
