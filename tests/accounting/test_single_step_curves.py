"""Curves against sums over finely cut outputs, which know nothing of their formulas."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from scipy.special import ndtr

from dpal.accounting.events import (
    LAPLACE_GRID,
    Event,
    NoisyScores,
    NoisyThreshold,
    PhaseExposure,
    RandomizedResponse,
)
from dpal.accounting.single_step_curves import Direction, MechanismStep
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

PAIRS = list(itertools.product(Adjacency, Direction))
events = st.one_of(
    st.builds(
        PhaseExposure,
        steps=st.just(1),
        sample_rate=st.floats(0.001, 1.0),
        noise_multiplier=st.floats(0.3, 10.0),
    ),
    st.builds(NoisyScores, epsilon=st.floats(0.01, 5.0)),
    st.builds(NoisyThreshold, noise_multiplier=st.floats(0.3, 20.0)),
)


def step_of(event: Event) -> MechanismStep:
    return event.composition()[0]


def outputs(event, adjacency) -> tuple[np.ndarray, np.ndarray]:
    """Chances of cut outputs with the record, and without it or with its replacement."""
    if isinstance(event, NoisyScores):
        # Whole grid steps: every output between the two means, and both tails as one.
        weight = event.epsilon / LAPLACE_GRID
        y = np.arange(0, LAPLACE_GRID + 1)
        scale = math.tanh(weight / 2)
        tail = 1 / (1 + math.exp(-weight))
        with_record = scale * np.exp(-weight * y)
        with_record[0] = tail
        with_record[-1] = math.exp(-event.epsilon) * tail
        return with_record, with_record[::-1]
    sigma = event.noise_multiplier
    rate = event.sample_rate if isinstance(event, PhaseExposure) else 1.0
    edges = np.linspace(-1 - 10 * sigma, 1 + 10 * sigma, 200_001)
    below = {mean: ndtr((edges - mean) / sigma) for mean in (-1, 0, 1)}
    replaced = adjacency is Adjacency.REPLACE_ONE and isinstance(event, PhaseExposure)
    moved = (1 - rate) * below[0] + rate * below[1]
    other = (1 - rate) * below[0] + rate * below[-1] if replaced else below[0]
    return tuple(np.diff(one, prepend=0.0, append=1.0) for one in (moved, other))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(events, st.sampled_from(PAIRS), st.floats(-4, 4))
def test_a_curve_is_the_sum_over_its_outputs(event, pair, loss):
    adjacency, direction = pair
    p, q = outputs(event, adjacency)
    if direction is Direction.ADD:
        p, q = q, p
    summed = np.maximum(0.0, p - math.exp(loss) * q).sum()
    found = float(step_of(event).delta(np.array([loss]), adjacency, direction)[0])
    assert found == approx(summed, abs=1e-7 * (1 + math.exp(loss)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(events, st.sampled_from(PAIRS))
def test_curves_are_privacy_curves(event, pair):
    """Falling from 1, never below 1 - e^x, and convex in e^x."""
    adjacency, direction = pair
    losses = np.linspace(-6, 6, 601)
    deltas = step_of(event).delta(losses, adjacency, direction)
    assert (np.diff(deltas) <= 1e-12).all()
    assert (deltas >= np.maximum(0, -np.expm1(losses)) - 1e-12).all()
    assert (deltas <= 1).all()
    slopes = np.diff(deltas) / np.diff(np.exp(losses))
    assert (np.diff(slopes) >= -1e-7 / np.diff(np.exp(losses))[:-1].min()).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(events, st.sampled_from(list(Adjacency)), st.floats(0.01, 5))
def test_one_direction_mirrors_the_other(event, adjacency, loss):
    """Swapping the two worlds: H(Q, P; -x) = 1 - e^-x + e^-x H(P, Q; x)."""
    one, other = (
        float(step_of(event).delta(np.array([x]), adjacency, direction)[0])
        for direction, x in zip(Direction, (loss, -loss), strict=True)
    )
    assert other == approx(-math.expm1(-loss) + math.exp(-loss) * one, abs=1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(events, st.sampled_from(PAIRS))
def test_hardly_anything_lies_beyond_reach(event, pair):
    low, high = step_of(event).reach(*pair)
    below, above = step_of(event).delta(np.array([low, high]), *pair)
    assert above <= 1e-20
    assert below == approx(-math.expm1(low), abs=1e-12)


def test_answers_have_no_curve_of_their_own():
    """Their two outcomes lead to different cohorts, so they are charged by path."""
    answer = RandomizedResponse(above=0.6, below=0.2, blank=0.3)
    for question in (
        answer.composition,
        answer.dp_event,
        lambda: answer.renyi(Adjacency.ZERO_OUT),
        lambda: answer.second_opinion(Adjacency.ZERO_OUT, 1e-3),
    ):
        with pytest.raises(ParameterError, match="RandomizedResponse is charged"):
            question()


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_replaced_gradients_that_point_apart_are_worst_in_the_plane_too(rate):
    """Replace-one in two dimensions, at any angle and lengths, against the curve (Kahane)."""
    sigma = 0.9
    # Where the two laws cross, sums over cells are off by about a tenth of a cell.
    axis = np.linspace(-8, 8, 401)
    error = 0.1 * (axis[1] - axis[0]) ** 2
    x, y = np.meshgrid(axis, axis)

    def density(gradient: complex) -> np.ndarray:
        at = (x - gradient.real) ** 2 + (y - gradient.imag) ** 2
        return np.exp(-at / (2 * sigma**2)) / (2 * np.pi * sigma**2) * (axis[1] - axis[0]) ** 2

    def law(gradient: complex) -> np.ndarray:
        return (1 - rate) * density(0) + rate * density(gradient)

    event = PhaseExposure(steps=1, sample_rate=rate, noise_multiplier=sigma)
    losses = np.array([-1.5, -0.3, 0.0, 0.4, 2.0])
    most = step_of(event).delta(losses, Adjacency.REPLACE_ONE, Direction.REMOVE)
    nearest = np.inf
    for angle, mine, other in itertools.product(
        np.pi * np.array([0, 0.3, 0.5, 0.9, 1]), [1.0, 0.6, 0.0], [1.0, 0.6, 0.0]
    ):
        p, q = law(mine), law(other * np.exp(1j * angle))
        found = np.array([np.maximum(p - math.exp(loss) * q, 0).sum() for loss in losses])
        assert (found <= most + error).all()
        nearest = min(nearest, np.abs(found - most).max())
    assert nearest < error  # opposite gradients of full length
