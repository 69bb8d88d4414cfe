"""Random histories, and what dp-accounting makes of them on a fine grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from dp_accounting.pld import privacy_loss_distribution as theirs
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import assume
from hypothesis import strategies as st

from dpal.accounting import pld, rdp
from dpal.accounting.events import (
    LAPLACE_GRID,
    Charge,
    Event,
    NoisyScores,
    NoisyThreshold,
    PhaseExposure,
    RandomizedResponse,
    Release,
)
from dpal.accounting.single_step_curves import Direction
from dpal.accounting.worst_path import campaign_profile, grid_of
from dpal.mechanisms.randomized_response import anchored_rates
from dpal.privacy import Adjacency

WIDTH = 1e-4  # of dp-accounting's grid: its default
LARGEST = 20.0  # epsilons beyond are of no use, and dp-accounting takes minutes for some

_RELATIONS = {
    Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
}


def spread(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers of all magnitudes between two ends."""
    return st.floats(math.log(low), math.log(high)).map(lambda x: min(high, max(low, math.exp(x))))


exposures = st.builds(
    PhaseExposure,
    steps=spread(1, 5000).map(round),
    sample_rate=spread(0.001, 0.7),
    noise_multiplier=spread(0.5, 10.0),
)
scores = st.builds(NoisyScores, epsilon=st.floats(0.05, 3.0))
thresholds = st.builds(NoisyThreshold, noise_multiplier=spread(0.5, 20.0))
gaussian = st.lists(exposures, min_size=1, max_size=3)
mixtures = st.tuples(gaussian, st.lists(st.one_of(scores, thresholds), max_size=2)).map(
    lambda parts: [*parts[0], *parts[1]]
)


def affordable(events: Sequence[Event], adjacency: Adjacency) -> bool:
    """Whether a history is worth accounting for."""
    return rdp.epsilon_spent(events, delta=1e-5, adjacency=adjacency) <= LARGEST


@st.composite
def answers(draw: st.DrawFn) -> RandomizedResponse:
    blank = draw(st.floats(0.05, 0.9))
    above, below = anchored_rates(draw(st.floats(0.1, 3.0)), blank)
    assume(0 < below < above < 1)
    return RandomizedResponse(above=above, below=below, blank=blank)


def ours(
    events: Sequence[Event],
    answer: RandomizedResponse | None,
    *,
    delta: float,
    adjacency: Adjacency,
) -> float:
    """Our certificate for a record that is asked, then trained whatever it answered."""
    asked = [] if answer is None else [Charge(cohorts=("1",), event=answer)]
    later = tuple(Charge(cohorts=("1",), event=event) for event in events)
    releases = [
        Release(name="asked", kind="selection", phase=1, charges=tuple(asked)),
        Release(name="trained", kind="training", phase=1, charges=later),
    ]
    grid = grid_of(releases, delta=delta, adjacency=adjacency, accuracy=pld.CERTIFY)
    return max(
        campaign_profile(releases, grid=grid, adjacency=adjacency, direction=direction).epsilon(
            delta
        )
        for direction in Direction
    )


def by_dp_accounting(
    events: Sequence[Event],
    answer: RandomizedResponse | None,
    *,
    delta: float,
    adjacency: Adjacency,
) -> float:
    """The same by dp-accounting's own constructors and composition."""
    total = reduce(lambda one, other: one.compose(other), [_part(e, adjacency) for e in events])
    if answer is None:
        return total.get_epsilon_for_delta(delta)
    sides = (answer.above, answer.below)
    others = sides if adjacency is Adjacency.REPLACE_ONE else (answer.blank,)
    return max(
        total.compose(_answered(p, q)).get_epsilon_for_delta(delta)
        for p in sides
        for q in others
        if p != q
    )


def _part(event: Event, adjacency: Adjacency) -> theirs.PrivacyLossDistribution:
    match event:
        case PhaseExposure():
            return theirs.from_gaussian_mechanism(
                event.noise_multiplier,
                sampling_prob=event.sample_rate,
                value_discretization_interval=WIDTH,
                neighboring_relation=_RELATIONS[adjacency],
            ).self_compose(event.steps)
        # A score is within its range and a count changes by one, whatever the adjacency.
        case NoisyThreshold():
            return theirs.from_gaussian_mechanism(
                event.noise_multiplier, value_discretization_interval=WIDTH
            )
        case NoisyScores():
            return theirs.from_discrete_laplace_mechanism(
                event.epsilon / LAPLACE_GRID,
                sensitivity=LAPLACE_GRID,
                value_discretization_interval=WIDTH,
            )
    raise AssertionError(event)


def _answered(p: float, q: float) -> theirs.PrivacyLossDistribution:
    return theirs.from_two_probability_mass_functions(
        {"yes": math.log(q), "no": math.log1p(-q)},
        {"yes": math.log(p), "no": math.log1p(-p)},
        value_discretization_interval=WIDTH,
        symmetric=False,
    )
