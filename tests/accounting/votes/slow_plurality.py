"""What a winner tells about one ballot, one move of one vote after the other: for comparing only.

Every law is a sum of logarithms on a grid of its own, every order is looked at for every move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.accounting.votes.mechanisms import Confidence

Floats = NDArray[np.float64]

_REACH, _SPACING = 11.0, 0.08  # of the integral, in standard deviations
_HALF_LOG_TWO_PI = math.log(2 * math.pi) / 2


@dataclass(frozen=True)
class _Histogram:
    """Distinct counts, and how many classes have each."""

    values: Floats
    classes: Floats


def plurality_divergence(
    counts: NDArray[np.integer],
    *,
    classes: int,
    sigma: float,
    orders: Floats,
    confidence: Confidence | None = None,
) -> Floats:
    """Largest Rényi divergence of the winner when one ballot is replaced, in both directions."""
    cast = counts[counts > 0]
    values, many = np.unique(cast, return_counts=True)
    held = dict(zip(values.tolist(), many.tolist(), strict=True))
    if classes > cast.size:
        held[0] = classes - cast.size
    mine = _Histogram(np.array(sorted(held)), np.array([held[v] for v in sorted(held)]))
    worst = np.zeros(orders.size)
    law = _law(mine, sigma)
    for giver in mine.values[mine.values > 0]:
        for taker in mine.values:
            if taker == giver and held[int(giver)] < 2:
                continue
            pairs, top = _moved(mine, law, float(giver), float(taker), sigma)
            if confidence is not None:
                pairs = _checked(pairs, float(mine.values.max()), top, confidence)
            worst = np.maximum(worst, _divergence(pairs, orders))
    return worst


def _law(histogram: _Histogram, sigma: float) -> Floats:
    """Log-chance that one class of each distinct count wins, (values,)."""
    values = histogram.values / sigma
    far = math.sqrt(2 * math.log(1 + histogram.classes.sum()))
    # The largest of very many classes varies over about 1 / far: a finer grid for it.
    spacing = _SPACING * min(1.0, 5 / far)
    x = np.arange(values.min() - _REACH, values.max() + far + _REACH, spacing)
    apart = x[None, :] - values[:, None]
    below = scipy.special.log_ndtr(apart)
    together = histogram.classes @ below
    density = -(apart**2) / 2 - _HALF_LOG_TWO_PI
    return np.asarray(
        scipy.special.logsumexp(density - below + together, axis=1) + math.log(spacing)
    )


def _moved(
    mine: _Histogram, law: Floats, giver: float, taker: float, sigma: float
) -> tuple[Floats, float]:
    """Classes of a kind with their log-chances before and after a vote moved, (kinds, 3)."""
    after: dict[float, float] = dict(zip(mine.values, mine.classes, strict=True))
    stay = dict(after)
    for value, new in ((giver, giver - 1), (taker, taker + 1)):
        after[value] -= 1
        after[new] = after.get(new, 0) + 1
        stay[value] -= 1
    values = np.array(sorted(value for value, many in after.items() if many))
    there = _Histogram(values, np.array([after[value] for value in values]))
    other = dict(zip(values, _law(there, sigma), strict=True))
    before = dict(zip(mine.values, law, strict=True))
    kinds = [(many, before[value], other[value]) for value, many in stay.items() if many]
    kinds += [(1.0, before[giver], other[giver - 1]), (1.0, before[taker], other[taker + 1])]
    return np.array(kinds), float(values.max())


def _checked(pairs: Floats, top: float, top_after: float, confidence: Confidence) -> Floats:
    """The same where an answer is given only above a threshold, and "no answer" released else."""
    here, there = ((count - confidence.threshold) / confidence.sigma for count in (top, top_after))
    given = pairs + np.array([0.0, scipy.special.log_ndtr(here), scipy.special.log_ndtr(there)])
    return np.vstack([given, [1.0, scipy.special.log_ndtr(-here), scipy.special.log_ndtr(-there)]])


def _divergence(pairs: Floats, orders: Floats) -> Floats:
    many, p, q = pairs[:, 0, None], pairs[:, 1, None], pairs[:, 2, None]
    both = [
        scipy.special.logsumexp(np.log(many) + orders * first + (1 - orders) * second, axis=0)
        for first, second in ((p, q), (q, p))
    ]
    return np.asarray(np.maximum(np.maximum(*both), 0.0) / (orders - 1))
