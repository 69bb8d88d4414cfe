"""Checks of the numbers: nothing is believed, everything is added up again, twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpal.accounting.agreement import tolerance
from dpal.accounting.cohorts import Accountant
from dpal.certificate.checks import Check, judged
from dpal.certificate.derive import Sources
from dpal.certificate.figures import SAME_ENGINE, cohort_by_dp_accounting

_OF_COHORT = ("selection_epsilon", "epsilon_rdp", "epsilon_pld")
_OF_CAMPAIGN = ("pld", "rdp", "dp_accounting")


def check_figures(
    document: Mapping[str, Any], derived: Mapping[str, Any], sources: Sources
) -> list[Check]:
    """Whether stated epsilons are what the events cost, by two accountants.

    Args:
      document: the certificate.
      derived: the same, from its entries.
      sources: its entries and plan.
    """
    releases, target = sources.releases, sources.target
    apart, recomputed = tolerance(releases, target), derived["epsilon"]
    seconds = {
        one["cohort"]: cohort_by_dp_accounting(one["cohort"], releases, target)
        for one in derived["cohorts"]
    }
    return [
        judged(
            "epsilon, our accountant",
            _own_faults(document, derived, apart),
            f"{recomputed['pld']:.4f} by PLD, {recomputed['rdp']:.4f} by RDP, whatever path a "
            "record takes",
        ),
        judged(
            "epsilon, dp-accounting",
            _second_faults(document["epsilon"], recomputed["dp_accounting"], apart),
            f"{recomputed['dp_accounting']:.4f}; both are upper bounds and may lie {apart:.4f} "
            "apart",
        ),
        judged(
            "cohorts, dp-accounting",
            _cohort_faults(document["cohorts"], seconds, apart),
            ", ".join(f"{_name(cohort)} {value:.4f}" for cohort, value in seconds.items()),
        ),
        judged(
            "promise",
            _promise_faults(recomputed, sources, apart),
            f"epsilon {target.epsilon:g} at delta {target.delta:.4g}, adjacency "
            f"{target.adjacency}, unit {target.unit}; kept",
        ),
    ]


def _own_faults(
    document: Mapping[str, Any], derived: Mapping[str, Any], apart: float
) -> Iterator[str]:
    for key in _OF_CAMPAIGN:
        # Another version of dp-accounting may overstate more or less.
        room = apart if key == "dp_accounting" else SAME_ENGINE
        yield from _differs(f"epsilon by {key}", document["epsilon"], derived["epsilon"], key, room)
    if set(document["epsilon"]) != set(_OF_CAMPAIGN):
        yield "an epsilon of an unknown accountant is stated"
    for one, other in zip(document["cohorts"], derived["cohorts"], strict=True):
        for key in _OF_COHORT:
            yield from _differs(f"cohort {one['cohort']}, {key}", one, other, key, SAME_ENGINE)


def _differs(
    what: str, stated: Mapping[str, Any], derived: Mapping[str, Any], key: str, room: float
) -> Iterator[str]:
    said, costs = stated.get(key), derived[key]
    if type(said) is not float:
        yield f"{what} is not stated as a decimal number"
    elif not abs(said - costs) <= room:  # so that NaN fails
        yield f"{what} is stated as {said:.4f}, and the events cost {costs:.4f}"


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


def _promise_faults(
    recomputed: Mapping[str, float], sources: Sources, apart: float
) -> Iterator[str]:
    target = sources.target
    kept_by = "rdp" if sources.accountant is Accountant.RDP else "pld"
    if not recomputed[kept_by] <= target.epsilon:
        yield (
            f"the events cost epsilon {recomputed[kept_by]:.4f} by {kept_by.upper()}, more than "
            f"the {target.epsilon:g} promised"
        )
    if not recomputed["dp_accounting"] <= target.epsilon + apart:
        yield (
            f"the events cost epsilon {recomputed['dp_accounting']:.4f} by dp-accounting, more "
            f"than the {target.epsilon:g} promised and the {apart:.4f} by which it may overstate"
        )


def _name(cohort: str) -> str:
    return cohort.replace("_", " ")
