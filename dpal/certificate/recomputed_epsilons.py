"""The epsilons of a certificate, by both accountants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dpal.accounting.cohort_spending import (
    Accountant,
    campaign_epsilon,
    entry_phase,
    second_opinion,
    spending,
)
from dpal.accounting.events import NEVER_SELECTED, VALIDATION, Answer, Event, Release
from dpal.accounting.secret_draws_amplification import amplified_epsilon
from dpal.accounting.validation_cohort import about_pool, about_validation
from dpal.accounting.worst_path import chance_of_entry
from dpal.privacy import Adjacency, PrivacyTarget

# Our own engine on another processor or with another numpy: its transforms differ by about
# 1e-15 of the largest value, against a delta above 1e-9 that epsilon depends on by logarithm.
SAME_ENGINE: Final = 1e-5


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
def recompute_figures(
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
                "selection_epsilon": float(cost.selection_epsilon),
                "epsilon_rdp": float(cost.epsilon_rdp),
                "epsilon_pld": float(cost.epsilon_pld),
            }
            for name, cost in spent.items()
        },
    )


def by_dp_accounting(releases: tuple[Release, ...], target: PrivacyTarget) -> float:
    """A campaign's epsilon over all paths by dp-accounting; infinite far above the target."""
    return float(second_opinion(releases, target))


@lru_cache(maxsize=128)
def cohort_by_dp_accounting(
    cohort: str, releases: tuple[Release, ...], target: PrivacyTarget
) -> float:
    """A cohort's epsilon by dp-accounting, from the charges that name it.

    Its answers are none of dp-accounting's events. An answer of chances p and q in the two
    worlds turns a curve H into p H(x - ln(p/q)), a secret draw of chance p one of (epsilon, delta)
    into one of (ln(1 + p (e^epsilon - 1)), p delta).
    """
    if cohort == VALIDATION:
        measured = tuple(about_validation(releases))
        return cohort_by_dp_accounting(NEVER_SELECTED, measured, target)
    releases = tuple(about_pool(releases))
    events: list[Event] = []
    ways = [(1.0, 0.0), (1.0, 0.0)]  # chance and loss so far, in either direction
    for release in releases:
        for charge in release.charges:
            if cohort not in charge.cohorts:
                continue
            if answer := charge.event.answer:
                selected = str(release.phase) == cohort
                more = _extremes(answer, target.adjacency, selected=selected)
                ways = [
                    (chance * p, loss + math.log(p / q))
                    for (chance, loss), (p, q) in zip(ways, more, strict=True)
                ]
            elif charge.event.entry_chance is None:
                events.append(charge.event)
    drawn, failing = chance_of_entry(releases, entry_phase(cohort, releases))
    delta = (target.delta - failing) / drawn
    if not delta > 0:
        return math.inf
    from dpal.accounting.second_opinion import one_way_epsilon  # imports dp-accounting

    epsilon = max(
        loss
        + one_way_epsilon(
            events, delta=delta / chance, adjacency=target.adjacency, removing=removing
        )
        if delta < chance
        else 0.0
        for (chance, loss), removing in zip(ways, (True, False), strict=True)
    )
    return epsilon if drawn == 1 else amplified_epsilon(max(0.0, epsilon), drawn)


def _extremes(
    answer: Answer, adjacency: Adjacency, *, selected: bool
) -> Iterator[tuple[float, float]]:
    """The likeliest and the least likely chance of an answer in the two worlds, both ways."""
    for removing in (True, False):
        pairs = answer.second_outcomes(adjacency, removing=removing)
        if not selected:
            pairs = [(1 - p, 1 - q) for p, q in pairs]
        yield max(p for p, _ in pairs), min(q for _, q in pairs)
