"""Rényi accounting: the orders that are computed, sums of curves, and their conversion.

Source of the conversion: Canonne, Kamath & Steinke (2020), Prop. 12.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.privacy import Adjacency

if TYPE_CHECKING:  # events are bounded at the orders of this module
    from dpal.accounting.events import Event

Curve = NDArray[np.float64]

ORDERS: Final = np.array(
    [x / 10 for x in range(11, 110)] + list(range(11, 65)) + [80, 96, 128, 192, 256, 512]
)


def epsilon_spent(
    history: Sequence[Event],
    *,
    delta: float,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
) -> float:
    """Bounds the privacy loss of a cohort over the phases it trained in.

    Args:
      history: exposures, thresholds and noisy scores; order does not matter.
      delta: failure probability, strictly between 0 and 1.
      adjacency: which change of the data the bound speaks of.

    Returns:
      An upper bound on epsilon (natural log); 0.0 when the cohort was never trained on.

    Raises:
      ParameterError: delta is not in (0, 1), or an event has no Rényi curve.

    >>> epsilon_spent([], delta=1e-5)
    0.0
    """
    check.inside(0, 1, delta=delta)
    # Adding curves before converting is what makes composition tight: the best order
    # for the sum is rarely the best order for any single phase.
    curves = [event.renyi(adjacency) for event in history]
    total: Curve = np.sum([np.zeros(ORDERS.size), *curves], axis=0)
    return to_epsilon(total, delta=delta) if total.any() else 0.0


def to_epsilon(total: Curve, *, delta: float) -> float:
    """Converts a Rényi curve over `ORDERS` to the smallest epsilon that it proves.

    A curve that is nowhere a number proves nothing: infinity.
    """
    slack = np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return smallest_proven(total + slack)


def smallest_proven(epsilons: Curve) -> float:
    """The smallest of what several orders prove; those that are no number prove nothing.

    Python's `max(0.0, nan)` is 0.0: an order without a bound would have made all free.
    """
    return max(0.0, float(np.fmin.reduce(epsilons, initial=np.inf)))
