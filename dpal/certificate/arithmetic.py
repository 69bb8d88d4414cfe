"""Checks of the numbers: nothing is believed, everything is added up again, twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpal.certificate.checks import Check, judged
from dpal.certificate.compare import Difference, Place, Room
from dpal.certificate.figures import SAME_ENGINE, cohort_by_dp_accounting
from dpal.certificate.promise import CAMPAIGN, check_promise, pool_size_of
from dpal.certificate.sources import Sources

_OF_COHORT = ("selection_epsilon", "epsilon_rdp", "epsilon_pld")


def room_for_figures(apart: float) -> Room:
    """Where the figures of a campaign stand, and how far they may lie apart.

    Args:
      apart: of dp-accounting's; another version of it may overstate more or less.
    """

    def room(place: Place) -> float | None:
        if place[:1] == ("epsilon",) and len(place) == 2:
            return apart if place[1] == "dp_accounting" else SAME_ENGINE
        if place[:1] == ("cohorts",) and len(place) == 3 and place[2] in _OF_COHORT:
            return SAME_ENGINE
        return None

    return room


def check_figures(
    document: Mapping[str, Any],
    derived: Mapping[str, Any],
    sources: Sources,
    found: Sequence[Difference],
    apart: float,
) -> list[Check]:
    """Whether stated epsilons are what the events cost, by two accountants.

    Args:
      document: the certificate.
      derived: the same, from its entries.
      sources: its entries and plan.
      found: differences between the two in their figures.
      apart: how far dp-accounting may lie above ours.
    """
    releases, target = sources.releases, sources.target
    recomputed = derived["epsilon"]
    seconds = {
        one["cohort"]: cohort_by_dp_accounting(one["cohort"], releases, target)
        for one in derived["cohorts"]
    }
    return [
        judged(
            "epsilon, our accountant",
            (one.says for one in found),
            f"{recomputed['pld']:.4f} by PLD, {recomputed['rdp']:.4f} by RDP, whatever path a "
            "record takes, as stated",
        ),
        judged(
            "epsilon, dp-accounting",
            _second_faults(document["epsilon"], recomputed["dp_accounting"], apart),
            f"{recomputed['dp_accounting']:.4f} by PLD; two programs' upper bounds may lie "
            f"{apart:.4f} apart",
        ),
        judged(
            "cohorts, dp-accounting",
            _cohort_faults(document["cohorts"], seconds, apart),
            ", ".join(f"{_name(cohort)}: {value:.4f}" for cohort, value in seconds.items()),
        ),
        check_promise(
            recomputed,
            target,
            sources.accountant,
            CAMPAIGN,
            second={"dp_accounting": apart},
            pool_size=pool_size_of(derived),
        ),
    ]


def _second_faults(stated: Mapping[str, Any], second: float, apart: float) -> Iterator[str]:
    for key in ("pld", "rdp"):
        if not second <= stated[key] + apart:
            yield (
                f"epsilon by {key} is stated as {stated[key]:.4f}, dp-accounting finds "
                f"{second:.4f}, and {apart:.4f} is all that they may differ by: too little is "
                "stated"
            )


def _cohort_faults(
    stated: Sequence[Mapping[str, Any]], seconds: Mapping[str, float], apart: float
) -> Iterator[str]:
    for one in stated:
        second = seconds.get(one["cohort"], math.inf)
        for key in ("epsilon_pld", "epsilon_rdp"):
            if not second <= one[key] + apart:
                yield (
                    f"cohort {one['cohort']}: {key} is stated as {one[key]:.4f}, dp-accounting "
                    f"finds {second:.4f}: too little is stated"
                )


def _name(cohort: str) -> str:
    return cohort.replace("_", " ")
