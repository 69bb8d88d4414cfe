"""The epsilons of a certificate, and how far two accountants may lie apart.

Both accountants are upper bounds, so that neither may be below the true epsilon; what
differs is by how much each overstates. dp-accounting's bound overstates more, and by this
much at most (`tolerance`):

Its distributions live on a grid of width h. Each step's loss l is moved to one of the two
grid points around it, to the upper one with chance (1 - e^(-(l - lower))) / (1 - e^-h), so
that its mass is kept in both worlds. Over T steps this adds to the loss a sum E whose
e^(-E) has mean 1 given the loss, and whose variance is at most T h^2 / 4. The divergence is
the mean of max(0, 1 - e^(x - loss)), which is convex in e^(-loss) and linear but for one
kink at x; so to second order it grows by (1/2) (T h^2 / 4) p(x), p being the density of the
loss under P at x. Dividing by its slope, which is p's tail under Q times e^x, moves epsilon
by (T h^2 / 8) times the hazard rate of the loss under Q at x. With s(x) = -d ln delta / dx
that rate is 1 + s - s'/s, and s rises (delta is log-concave in x near the tail), so it is at
most 1 + s; s at epsilon is in turn at most 1 / (epsilon(delta/e) - epsilon(delta)).
A selection is averaged or read along chords on a grid of spacing w, the same with w for h,
and epsilon is rounded up to that grid, which adds w:

    tolerance = w + (1 + s) (T h^2 + S w^2) / 8     for T steps and S selection events.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from dpal.accounting import oracle
from dpal.accounting.cohorts import Accountant, campaign_epsilon, second_opinion, spending
from dpal.accounting.events import AnchoredAnswers, Event, PhaseExposure, Release
from dpal.privacy import Adjacency, PrivacyTarget

# Our own engine on another processor or with another numpy: its transforms differ by about
# 1e-15 of the largest value, against a delta above 1e-9 that epsilon depends on by logarithm.
SAME_ENGINE: Final = 1e-5

_STEP_GRID: Final = 1e-3  # dp-accounting's grid for steps, as `oracle` asks for it
_PATH_GRID: Final = 2e-3  # spacing at which `oracle` samples paths


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The epsilons of a campaign.

    Attributes:
      campaign: over every path a record can take, by accountant.
      cohorts: by cohort and accountant.
    """

    campaign: dict[str, float]
    cohorts: dict[str, dict[str, float]]


@lru_cache(maxsize=32)
def figures_of(
    releases: tuple[Release, ...], target: PrivacyTarget, cohorts: tuple[str, ...]
) -> Figures:
    """Recomputes all epsilons from the events alone.

    Args:
      releases: what was reserved, in order.
      target: gives delta and adjacency.
      cohorts: names of all cohorts.
    """
    spent = {name: spending(name, releases, target) for name in cohorts}
    return Figures(
        campaign={
            "pld": float(campaign_epsilon(releases, target)),
            "rdp": float(campaign_epsilon(releases, target, accountant=Accountant.RDP)),
            "dp_accounting": by_dp_accounting(releases, target),
        },
        cohorts={
            name: {
                "selection_epsilon": float(one.selection_epsilon),
                "epsilon_rdp": float(one.epsilon_rdp),
                "epsilon_pld": float(one.epsilon_pld),
            }
            for name, one in spent.items()
        },
    )


@lru_cache(maxsize=32)
def tolerance(releases: tuple[Release, ...], target: PrivacyTarget) -> float:
    """How far dp-accounting's bound may lie above the true epsilon.

    Args:
      releases: what was reserved, in order.
      target: gives delta and adjacency.

    Source:
      Derived above. Grid: Doroshenko et al. (2022), "Connect the dots".
    """
    events = [charge.event for release in releases for charge in release.charges]
    steps = sum(event.steps for event in events if isinstance(event, PhaseExposure))
    selections = sum(not isinstance(event, PhaseExposure) for event in events)
    here = campaign_epsilon(releases, target)
    further = campaign_epsilon(releases, replace(target, delta=target.delta / math.e))
    slope = 1 / (further - here) if math.isfinite(further) and further > here else math.inf
    moved = (steps * _STEP_GRID**2 + selections * _PATH_GRID**2) / 8
    # Without a slope (nothing was released, say) there is no second order: only the grid.
    return _PATH_GRID + ((1 + slope) * moved if math.isfinite(slope) else 0.0)


@lru_cache(maxsize=32)
def by_dp_accounting(releases: tuple[Release, ...], target: PrivacyTarget) -> float:
    """A campaign's epsilon over all paths by dp-accounting; infinite far above the target."""
    return float(second_opinion(releases, target))


@lru_cache(maxsize=128)
def cohort_by_dp_accounting(
    cohort: str, releases: tuple[Release, ...], target: PrivacyTarget
) -> float:
    """A cohort's epsilon by dp-accounting, from the charges that name it.

    Its answers are none of dp-accounting's events. An answer of chances p and q in the two
    worlds turns a curve H into p H(x - ln(p/q)).
    """
    events: list[Event] = []
    ways = [(1.0, 0.0), (1.0, 0.0)]  # chance and loss so far, in either direction
    for release in releases:
        for charge in release.charges:
            if cohort not in charge.cohorts:
                continue
            if isinstance(charge.event, AnchoredAnswers):
                selected = str(release.phase) == cohort
                more = _answer(charge.event, target.adjacency, selected=selected)
                ways = [
                    (chance * p, loss + math.log(p / q))
                    for (chance, loss), (p, q) in zip(ways, more, strict=True)
                ]
            else:
                events.append(charge.event)
    return max(
        loss
        + oracle.one_way_epsilon(
            events, delta=target.delta / chance, adjacency=target.adjacency, removing=removing
        )
        if target.delta < chance
        else 0.0
        for (chance, loss), removing in zip(ways, (True, False), strict=True)
    )


def _answer(
    answer: AnchoredAnswers, adjacency: Adjacency, *, selected: bool
) -> list[tuple[float, float]]:
    """The likeliest and the least likely chance of an answer in the two worlds, both ways."""
    sides = [answer.above, answer.below]
    others = sides if adjacency is Adjacency.REPLACE_ONE else [answer.blank]
    if not selected:
        sides, others = ([1 - one for one in chances] for chances in (sides, others))
    return [(max(sides), min(others)), (max(others), min(sides))]
