"""Whether a plan's hidden queries keep as much in reserve as their charges say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import scipy

_ROUNDING = 1e-9  # of a logarithm


def unsound_gates(plan: Mapping[str, Any]) -> Iterator[str]:
    """Caps and limits for which thresholds are charged too seldom an overflow.

    Plans of a search that has no confirming count say nothing of a limit, and are left alone.

    Args:
      plan: as JSON, as it was held.

    Source: docs/guarantee.md, theorem 2b.
    """
    phases = [phase for phase in plan["phases"] if phase["selection"].get("start") == "validation"]
    together = [phase for phase in phases if phase["selection"].get("label_cap") == "sum"]
    alone = [[phase] for phase in phases if phase["selection"].get("label_cap") != "sum"]
    if together and alone:
        yield "some hidden queries share a cap on labels and others do not"
    for queries in [*alone, *([together] if together else [])]:
        yield from _unsound_cap(queries)


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
