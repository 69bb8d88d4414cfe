"""Google's dp-accounting as the second opinion on every plan.

Histories become distributions by dp-accounting's own constructors (`Event.second_opinion`) and
composition; the envelope over paths is walked here once more, on curves that it evaluated, by
plain sums. Nothing of our engine (curves, pld, profiles, envelope recursion) is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from numpy.typing import NDArray

from dpal.accounting.events import NEVER_SELECTED, Answer, Event, Release
from dpal.accounting.second_opinion_on_draws import (
    along_chords,
    coin_of_phase,
    failing_draws,
    mixed,
    mixed_beside_a_shared_branch,
)
from dpal.privacy import Adjacency

Curve = NDArray[np.float64]

# Pessimistic whatever its width; at 1e-3 epsilon is within 0.001 of the limit.
_DISCRETIZATION = 1e-3
_SPACING = 2e-3  # between the epsilons at which curves are sampled
_LARGEST_LIMIT = 300.0  # twice as much, and what a draw adds, is a number that e can be raised to


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


def second_opinion_epsilon(
    releases: Sequence[Release], *, delta: float, adjacency: Adjacency, limit: float
) -> float:
    """The campaign's epsilon over every path of a record, by dp-accounting's distributions.

    Args:
      releases: all of them, in order.
      delta: failure probability.
      adjacency: which change of the data is meant.
      limit: epsilons up to twice this one (and 5) are looked at; at most to 605.

    Returns:
      An upper bound on epsilon; infinity beyond what was looked at.
    """
    limit, phases = min(limit, _LARGEST_LIMIT), range(_last_phase(releases) + 1)
    coins = [coin for phase in phases if (coin := coin_of_phase(releases, phase))]
    chances = [chance for coin in coins if (chance := coin.entry_chance)]
    # What is drawn in secret may lose as much more as it is seldom drawn.
    highest = 2 * limit + 10 - math.log(min([1.0, *chances]))
    epsilons = np.arange(-2 * limit - 10, highest, _SPACING)
    curves = [_envelope(releases, epsilons, adjacency, removing) for removing in (True, False)]
    within = np.flatnonzero((np.maximum(*curves) <= delta) & (epsilons >= 0))
    if not within.size or epsilons[within[0]] > 2 * limit + 5:
        return math.inf
    return float(epsilons[within[0]])


def _envelope(
    releases: Sequence[Release], epsilons: Curve, adjacency: Adjacency, removing: bool
) -> Curve:
    """The worst path's delta at every epsilon, in one direction."""
    aside = value = _after_entry(releases, NEVER_SELECTED, epsilons, adjacency, removing)
    shared = not _events_after(releases, NEVER_SELECTED)  # nothing about those in no cohort yet
    inside, drawn = np.zeros(0), 0.0  # replace-one: cohorts that are drawn out of such a pool
    for phase in range(_last_phase(releases), -1, -1):
        entered = _after_entry(releases, str(phase), epsilons, adjacency, removing)
        coin = coin_of_phase(releases, phase)
        chance = None if coin is None else coin.entry_chance
        if coin is not None and coin.candidate_chance < 1:
            value = _among_candidates(coin, value, aside, epsilons, adjacency, removing)
            shared = False
        if chance is None:
            selection = [
                charge.event
                for release in releases
                if release.selects and release.phase == phase
                for charge in release.charges
            ]
            value = _selected(selection, entered, value, epsilons, adjacency, removing)
            shared = False
            if phase and not selection:  # whoever is in no cohort yet joins, candidate or not
                aside = np.maximum(entered, aside)
        elif adjacency is Adjacency.ZERO_OUT:
            value = mixed(chance, entered, value, epsilons, removing=removing)
        elif shared:
            later = (1 - chance) * drawn
            inside = (chance * entered + later * inside) / (chance + later) if drawn else entered
            drawn = chance + later
            value = mixed_beside_a_shared_branch(drawn, inside, epsilons)
        else:
            value = chance * entered + (1 - chance) * value
    return np.minimum(1.0, value + failing_draws(releases))


def _among_candidates(
    coin: Event,
    candidates: Curve,
    aside: Curve,
    epsilons: Curve,
    adjacency: Adjacency,
    removing: bool,
) -> Curve:
    """Those whom the coin does not draw: candidates of later queries, and all others."""
    share = coin.candidate_chance
    if adjacency is Adjacency.ZERO_OUT:
        return mixed(share, candidates, aside, epsilons, removing=removing)
    return share * candidates + (1 - share) * aside


def _last_phase(releases: Sequence[Release]) -> int:
    return max((release.phase for release in releases), default=0)


def _selected(
    selection: Sequence[Event],
    entered: Curve,
    stayed: Curve,
    epsilons: Curve,
    adjacency: Adjacency,
    removing: bool,
) -> Curve:
    """Before a selection that anything but secret coins decides."""
    value = np.maximum(entered, stayed)
    for event in reversed(selection):
        if answer := event.answer:
            value = _answered(answer, epsilons, entered, value, adjacency, removing)
        else:
            value = _averaged(event, value, adjacency, removing)
    return value


def _after_entry(
    releases: Sequence[Release],
    cohort: str,
    epsilons: Curve,
    adjacency: Adjacency,
    removing: bool,
) -> Curve:
    """Delta of what happens to a cohort after it entered, or to whoever never entered any."""
    later = _events_after(releases, cohort)
    if not later:
        return np.maximum(0.0, -np.expm1(np.minimum(epsilons, 0)))
    return _deltas(
        _one_way(_composed(tuple(later), adjacency, _DISCRETIZATION), removing), epsilons
    )


def _events_after(releases: Sequence[Release], cohort: str) -> list[Event]:
    """Everything that happens to a cohort after it entered, or to whoever never entered any."""
    entered = math.inf if cohort == NEVER_SELECTED else int(cohort)
    return [
        charge.event
        for release in releases
        if release.phase > entered or not release.selects
        for charge in release.charges
        if cohort in charge.cohorts
    ]


def _deltas(distribution: Any, epsilons: Curve) -> Curve:
    """What dp-accounting's `get_delta_for_epsilon` says, by the same sums in the same order.

    Its loop in Python takes seconds for the many epsilons of a curve.

    Args:
      distribution: one direction of dp-accounting's.
      epsilons: finite, in any order.

    Returns:
      delta at each of them: the chance of larger losses less e^epsilon times theirs in the other
      world.
    """
    dense = distribution.to_dense_pmf()
    losses = (np.arange(dense.size) + dense._lower_loss) * dense._discretization
    largest_first = dense._probs[::-1]
    here = np.cumsum(np.concatenate([[dense._infinity_mass], largest_first]))
    there = np.cumsum(np.concatenate([[0.0], largest_first * np.exp(-losses[::-1])]))
    larger = losses.size - np.searchsorted(losses, epsilons, side="right")
    deltas: Curve = here[larger] - np.exp(epsilons) * there[larger]
    return deltas


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
    return event.second_opinion(adjacency, width)


def _averaged(event: Event, curve: Curve, adjacency: Adjacency, removing: bool) -> Curve:
    """E over the event's privacy loss of curve(epsilon - loss), on the sampling grid."""
    first, masses, infinite = _losses(event, adjacency, removing)
    # Outside of the sampled epsilons a curve is at most 1 below and its last value above.
    ahead = np.concatenate([np.ones(max(0, first + masses.size)), curve])
    padded = np.concatenate([ahead, np.full(max(0, -first), curve[-1])])
    offset = ahead.size - curve.size - first
    mixed = np.convolve(padded, masses)
    return np.minimum(1.0, mixed[offset : offset + curve.size] + infinite)


def _losses(event: Event, adjacency: Adjacency, removing: bool) -> tuple[int, Curve, float]:
    """Chances of an event's losses on the sampling grid, its first index, the chance beyond.

    Each cell of losses [a, b] is split between its ends so that its chance in both worlds
    is kept; a curve is convex in e^epsilon, so the split overstates.
    """
    cells = event.loss_cells(_SPACING)
    if cells is None:
        dense = _one_way(_distribution(event, adjacency, _SPACING), removing).to_dense_pmf()
        return dense._lower_loss, dense._probs, dense._infinity_mass
    edges, with_record, without, infinite = cells
    upper = (with_record - np.exp(edges[:-1]) * without) / -math.expm1(-_SPACING)
    upper = np.clip(upper, 0.0, with_record)
    masses = np.zeros(edges.size)
    masses[1:] += upper
    masses[:-1] += with_record - upper
    return round(edges[0] / _SPACING), masses, infinite


def _answered(
    answer: Answer,
    epsilons: Curve,
    yes: Curve,
    no: Curve,
    adjacency: Adjacency,
    removing: bool,
) -> Curve:
    """Both answers, for the worst state of the record."""
    answered: Curve = np.max(
        [
            p * along_chords(epsilons, yes, epsilons - math.log(p / q))
            + (1 - p) * along_chords(epsilons, no, epsilons - math.log((1 - p) / (1 - q)))
            for p, q in answer.second_outcomes(adjacency, removing=removing)
        ],
        axis=0,
    )
    return answered
