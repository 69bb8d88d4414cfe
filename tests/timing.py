"""An attacker who tells how many labels a hidden campaign bought from whatever follows time.

He knows the plan and the machine: he has watched campaigns like it whose counts he knew, fits a
Gaussian to each figure under each count, and adds up the logarithms of their likelihood ratios.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

COUNTS = (300, 211, 150)  # labels that were bought; the plan is the same
STEPS = 2000  # of a phase
_FLOOR = 1e-3  # of a standard deviation: nothing is measured better


def step_seconds(count: int, jitter: float = 1.0) -> float:
    """Time of a step, as measured: 10 of them take 1.19, 1.08 and 0.97 s at these counts."""
    return jitter * (0.075 + 0.000147 * count)


def moments(kinds: int, runs: int, seed: int) -> list[datetime]:
    """When campaigns begin, the same for all counts: at any time of a year."""
    generator = np.random.default_rng(seed)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    return [begin + timedelta(days=float(one)) for one in generator.uniform(0, 365, runs)] * kinds


def seconds(value: Any) -> float:
    """A time as text, or in milliseconds as MLflow has them, in seconds since 1970."""
    if isinstance(value, str):
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return float(value) / 1000


def figures_of_entries(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What he reads off a campaign's part of a ledger."""
    rows = [one for one in rows if one["campaign"]]
    checkpoints = [one for one in rows if one["kind"] == "checkpoint"]
    others = [one for one in rows if one["kind"] != "checkpoint"]
    found = {"entries": float(len(rows)), "checkpoints": float(len(checkpoints))}
    steps = [one["steps_on_disk"] for one in checkpoints]
    found["cadence"] = float(np.mean(np.diff([0, *steps]) if steps else 0))
    for before, after in itertools.pairwise(others):
        name = f"{after['kind']} {after['release']}"
        found[name] = seconds(after["recorded_at"]) - seconds(before["recorded_at"])
    found["all"] = seconds(rows[-1]["recorded_at"]) - seconds(rows[0]["recorded_at"])
    return found


def auc(seen: Mapping[int, Sequence[Mapping[str, float]]]) -> float:
    """How well he tells two counts apart, at best: the area under his curve, .5 for guessing.

    Args:
      seen: figures of runs by their count; he learns from the first half and is tested on the
        others.
    """
    return max(_area(seen[high], seen[low]) for high, low in itertools.combinations(seen, 2))


def _area(high: Sequence[Mapping[str, float]], low: Sequence[Mapping[str, float]]) -> float:
    names = sorted(set.intersection(*(set(one) for one in (*high, *low))))
    tables = [np.array([[one[name] for name in names] for one in runs]) for runs in (high, low)]
    learnt = [table[: len(table) // 2] for table in tables]
    means = [table.mean(axis=0) for table in learnt]
    deviation = np.sqrt(np.mean([table.var(axis=0) for table in learnt], axis=0))
    scale = np.maximum(deviation, _FLOOR)

    def score(table: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        above, below = (((table - mean) / scale) ** 2 for mean in means)
        return np.asarray((below - above).sum(axis=1) / 2)

    ours, theirs = (score(table[len(table) // 2 :]) for table in tables)
    difference = ours[:, None] - theirs[None, :]
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))
