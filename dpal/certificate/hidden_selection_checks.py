"""Whether a plan's hidden queries keep as much in reserve as their charges say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import scipy

_ROUNDING = 1e-9  # of a logarithm
_DRAWN_WIDER = 1 + 2.0**-20  # noise, at most


def unsound_gates(plan: Mapping[str, Any]) -> Iterator[str]:
    """Caps and limits for which thresholds are charged too seldom an overflow.

    Args:
      plan: as JSON, as it was held.

    Source: docs/guarantee.md, theorem 2b.
    """
    spec = plan["spec"]
    if spec["selection"] != "hidden":
        return
    gates = [phase for phase in plan["phases"] if "threshold" in phase["selection"]]
    start, cap = spec.get("threshold_start", "plain"), spec.get("label_cap", "query")
    for phase in gates:
        step = phase["selection"]
        said = (step.get("start", "plain"), step.get("label_cap", "query"))
        if said != (start, cap) or start not in ("plain", "validation"):
            yield f"phase {phase['index']} looks for its threshold otherwise than was asked for"
            return
    if start == "plain":
        for phase in gates:
            yield from _unsound_reserve(phase)
        return
    phases = gates
    together = [phase for phase in phases if phase["selection"].get("label_cap") == "sum"]
    alone = [[phase] for phase in phases if phase["selection"].get("label_cap") != "sum"]
    if together and alone:
        yield "some hidden queries share a cap on labels and others do not"
    for queries in [*alone, *([together] if together else [])]:
        yield from _unsound_cap(queries)


def _unsound_reserve(phase: Mapping[str, Any]) -> Iterator[str]:
    """A gate without a confirming count: any of its comparisons may accept its threshold."""
    step = phase["selection"]
    threshold, comparisons = step["threshold"], step["comparisons"]
    noise = threshold["noise_multiplier"] * math.sqrt(comparisons)
    over = (phase["cohort_size"] - step["aim"] - 1) / noise
    chance = math.log(comparisons) + float(scipy.special.log_ndtr(-over))
    overflow = threshold.get("overflow", 0.0)
    if not (overflow > 0 and chance <= math.log(overflow) + _ROUNDING):
        yield f"phase {phase['index']} may select more than its query too often"


def _unsound_cap(queries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Faults of queries that have one cap, in the order in which they are made."""
    steps = [query["selection"] for query in queries]
    variance, kept = 0.0, 0.0  # of confirming counts, and ln of the chance that none overflows
    size = sum(query["cohort_size"] for query in queries)
    for count, (query, step) in enumerate(zip(queries, steps, strict=True), start=1):
        threshold, share = step["threshold"], step["confirming_share"]
        reserve = steps[0]["cap"] - steps[0]["limit"]
        if (step["cap"], step["limit"]) != (size, size - reserve) or not 0 < share < 1:
            yield f"phase {query['index']} has another cap on labels than its queries ask for"
            return
        variance += threshold["noise_multiplier"] ** 2 / share
        kept += math.log1p(-threshold.get("overflow", 0.0))
        over = (reserve - count / 2) / math.sqrt(variance)
        chance = count * math.log(2) + float(scipy.special.log_ndtr(-over))
        charged = -math.expm1(kept)
        if not (charged > 0 and chance <= math.log(charged) + _ROUNDING):
            yield f"phase {query['index']} may select more than its cap too often"
