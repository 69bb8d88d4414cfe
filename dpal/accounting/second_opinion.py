"""Google's dp-accounting as the second opinion on every plan.

Histories become distributions by dp-accounting's own constructors and composition; the
envelope over paths is walked here once more, on curves that it evaluated, by plain sums.
Nothing of our engine (curves, pld, profiles, envelope recursion) is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import scipy
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation
from numpy.typing import NDArray

from dpal.accounting.events import (
    NEVER_SELECTED,
    AnchoredAnswers,
    Event,
    NoisyCounts,
    NoisyMajorities,
    NoisyMoments,
    NoisyScores,
    NoisyThreshold,
    NoisyVotes,
    PhaseExposure,
    Release,
    VotesWithin,
)
from dpal.accounting.votes.events import LEAST_DELTA
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

Curve = NDArray[np.float64]

# Pessimistic whatever its width; at 1e-3 epsilon is within 0.001 of the limit.
_DISCRETIZATION = 1e-3
_SPACING = 2e-3  # between the epsilons at which curves are sampled

_RELATIONS = {
    Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
}


def epsilon_by_pld(
    events: Iterable[Event],
    *,
    delta: float,
    adjacency: Adjacency,
    discretization: float = _DISCRETIZATION,
) -> float:
    """Upper bound on epsilon from the composed privacy loss distribution.

    Args:
      events: what happened to one cohort, in any order.
      delta: failure probability.
      adjacency: which change of the data the bound speaks of.
      discretization: width of dp-accounting's grid; smaller is tighter and slower.

    Returns:
      epsilon, both directions taken, rounded up by the discretisation.

    Raises:
      ParameterError: an event has no privacy loss distribution.

    Source:
      Doroshenko et al. (2022), "Connect the dots"; dp-accounting's implementation.
    """
    composed = _composed(tuple(events), adjacency, discretization)
    return float(composed.get_epsilon_for_delta(delta))


def one_way_epsilon(
    events: Iterable[Event], *, delta: float, adjacency: Adjacency, removing: bool
) -> float:
    """Like `epsilon_by_pld`, in one direction: for what comes after an answer was given."""
    composed = _composed(tuple(events), adjacency, _DISCRETIZATION)
    return float(_one_way(composed, removing).get_epsilon_for_delta(delta))


def campaign_epsilon(
    releases: Sequence[Release], *, delta: float, adjacency: Adjacency, limit: float
) -> float:
    """The campaign's epsilon over every path of a record, by dp-accounting's distributions.

    Args:
      releases: all of them, in order.
      delta: failure probability.
      adjacency: which change of the data is meant.
      limit: epsilons up to twice this one (and 5) are looked at.

    Returns:
      An upper bound on epsilon; infinity beyond what was looked at.
    """
    epsilons = np.arange(-2 * limit - 10, 2 * limit + 10, _SPACING)
    curves = [_envelope(releases, epsilons, adjacency, removing) for removing in (True, False)]
    within = np.flatnonzero((np.maximum(*curves) <= delta) & (epsilons >= 0))
    if not within.size or epsilons[within[0]] > 2 * limit + 5:
        return math.inf
    return float(epsilons[within[0]])


def _envelope(
    releases: Sequence[Release], epsilons: Curve, adjacency: Adjacency, removing: bool
) -> Curve:
    """The worst path's delta at every epsilon, in one direction."""
    value = _after_entry(releases, NEVER_SELECTED, epsilons, adjacency, removing)
    for phase in range(max((one.phase for one in releases), default=0), 0, -1):
        entered = _after_entry(releases, str(phase), epsilons, adjacency, removing)
        mixed = np.maximum(entered, value)
        selection = [
            charge.event
            for one in releases
            if one.selects and one.phase == phase
            for charge in one.charges
        ]
        for event in reversed(selection):
            if isinstance(event, AnchoredAnswers):
                mixed = _answered(event, epsilons, entered, mixed, adjacency, removing)
            else:
                mixed = _averaged(event, mixed)
        value = mixed
    return np.maximum(value, _after_entry(releases, "0", epsilons, adjacency, removing))


def _after_entry(
    releases: Sequence[Release],
    cohort: str,
    epsilons: Curve,
    adjacency: Adjacency,
    removing: bool,
) -> Curve:
    """Delta of what happens to a cohort after it entered, or to whoever never entered any."""
    entered = math.inf if cohort == NEVER_SELECTED else int(cohort)
    later = [
        charge.event
        for one in releases
        if one.phase > entered or not one.selects
        for charge in one.charges
        if cohort in charge.cohorts
    ]
    if not later:
        return np.maximum(0.0, -np.expm1(np.minimum(epsilons, 0)))
    composed = _composed(tuple(later), adjacency, _DISCRETIZATION)
    return np.asarray(_one_way(composed, removing).get_delta_for_epsilon(epsilons))


def _one_way(composed: pld.PrivacyLossDistribution, removing: bool) -> Any:
    """One direction: dp-accounting's public questions take the worse, paths need each."""
    return composed._pmf_remove if removing else composed._pmf_add


def _composed(
    events: tuple[Event, ...], adjacency: Adjacency, width: float
) -> pld.PrivacyLossDistribution:
    parts = [_distribution(event, adjacency, width) for event in events]
    return reduce(lambda total, part: total.compose(part), parts, pld.identity(width))


@lru_cache(maxsize=64)
def _distribution(event: Event, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
    match event:
        case PhaseExposure():
            if event.steps == 0 or event.sample_rate == 0:
                return pld.identity(width)
            step = pld.from_gaussian_mechanism(
                event.noise_multiplier,
                sampling_prob=event.sample_rate,
                value_discretization_interval=width,
                neighboring_relation=_RELATIONS[adjacency],
            )
            return step.self_compose(event.steps)
        case NoisyScores():
            # The range bounds the change of a score under both adjacencies.
            return pld.from_laplace_mechanism(
                1 / event.epsilon, value_discretization_interval=width
            )
        case NoisyThreshold():
            # A count changes by 1 under both adjacencies, so never "replace one" here.
            noise = pld.from_gaussian_mechanism(
                event.noise_multiplier, value_discretization_interval=width
            )
            failing = pld.from_privacy_parameters(
                pld.common.DifferentialPrivacyParameters(0.0, event.overflow), width
            )
            return noise.compose(failing) if event.overflow else noise
        case NoisyMoments() | NoisyVotes() | NoisyMajorities():
            # The multiplier is over the sensitivity under the promised adjacency; of answers
            # it is that of the counts they are read off, which tell more.
            return pld.from_gaussian_mechanism(
                event.noise_multiplier, value_discretization_interval=width
            )
        case VotesWithin():
            fails = min(1.0, event.failure + LEAST_DELTA)
            claimed = pld.common.DifferentialPrivacyParameters(event.pure, fails)
            return pld.from_privacy_parameters(claimed, width)
        case NoisyCounts():
            one = pld.from_laplace_mechanism(1 / event.epsilon, value_discretization_interval=width)
            return one.self_compose(event.moved)
    raise ParameterError(f"{type(event).__name__} is charged by path, not by itself")


def _averaged(event: Event, curve: Curve) -> Curve:
    """E over the event's privacy loss of curve(epsilon - loss), on the sampling grid.

    Each cell of losses [a, b] is split between its ends so that its chance in both worlds
    is kept; a curve is convex in e^epsilon, so the split overstates.
    """
    edges, with_record, without, infinite = _cells(event)
    upper = (with_record - np.exp(edges[:-1]) * without) / -math.expm1(-_SPACING)
    upper = np.clip(upper, 0.0, with_record)
    masses = np.zeros(edges.size)
    masses[1:] += upper
    masses[:-1] += with_record - upper
    first = round(edges[0] / _SPACING)
    # Outside of the sampled epsilons a curve is at most 1 below and its last value above.
    ahead = np.concatenate([np.ones(max(0, first + masses.size)), curve])
    padded = np.concatenate([ahead, np.full(max(0, -first), curve[-1])])
    offset = ahead.size - curve.size - first
    mixed = np.convolve(padded, masses)
    return np.minimum(1.0, mixed[offset : offset + curve.size] + infinite)


def _cells(event: Event) -> tuple[Curve, Curve, Curve, float]:
    """Cells of privacy loss, their chances in both worlds, and the chance beyond them."""
    if isinstance(event, NoisyScores):
        bound = math.ceil(event.epsilon / _SPACING)
        edges = _SPACING * np.arange(-bound, bound + 1, dtype=np.float64)
        # Output y of a shift by 1 has loss epsilon * (1 - 2 y) for y between 0 and 1.
        y = np.clip((1 - edges / event.epsilon) / 2, 0, 1)
        above = np.where(y > 0, 1 - np.exp(-event.epsilon * y) / 2, 0.5)
        above_blank = np.exp(-event.epsilon * (1 - y)) / 2
        # Beyond both ends lie the atoms at +-epsilon.
        above[edges >= event.epsilon] = above_blank[edges >= event.epsilon] = 0.0
        above[edges <= -event.epsilon] = above_blank[edges <= -event.epsilon] = 1.0
        return edges, -np.diff(above), -np.diff(above_blank), 0.0
    if isinstance(event, NoisyThreshold):
        sigma = event.noise_multiplier
        middle, far = 0.5 / sigma**2, 9 / sigma
        low, high = (math.floor((middle - far) / _SPACING), math.ceil((middle + far) / _SPACING))
        edges = _SPACING * np.arange(low, high + 1, dtype=np.float64)
        tail: Curve = scipy.special.ndtr((middle - edges) * sigma)
        tail_blank: Curve = scipy.special.ndtr((-middle - edges) * sigma)
        beyond = float(tail[-1]) + event.overflow
        tail[0] = tail_blank[0] = 1.0
        return edges, -np.diff(tail), -np.diff(tail_blank), beyond
    raise ParameterError(f"{type(event).__name__} has no table of losses")


def _answered(
    event: AnchoredAnswers,
    epsilons: Curve,
    yes: Curve,
    no: Curve,
    adjacency: Adjacency,
    removing: bool,
) -> Curve:
    """Both answers, for the worst side of the threshold."""
    sides = (event.above, event.below)
    if adjacency is Adjacency.REPLACE_ONE:
        pairs = [(p, q) for p in sides for q in sides]
    else:
        pairs = [(p, event.blank) if removing else (event.blank, p) for p in sides]
    answered: Curve = np.max(
        [
            p * _at(epsilons, yes, epsilons - math.log(p / q))
            + (1 - p) * _at(epsilons, no, epsilons - math.log((1 - p) / (1 - q)))
            for p, q in pairs
        ],
        axis=0,
    )
    return answered


def _at(epsilons: Curve, curve: Curve, wanted: Curve) -> Curve:
    """A falling curve between its samples, along chords in e^epsilon."""
    inside = np.interp(np.exp(wanted), np.exp(epsilons), curve)
    return np.where(wanted < epsilons[0], 1.0, inside)
