"""The second opinion on an ensemble's votes, by Rényi divergences.

Nothing of our tables and curves is used: events compute their divergences once more
(`second_renyi`: chances come from the error function, divergences from plain sums over all
counts), orders and conversion are those of Google's dp-accounting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from dp_accounting.rdp import rdp_privacy_accountant

from dpal.accounting.events import Event


def epsilon_of_votes(events: Iterable[Event], *, delta: float) -> float:
    """Upper bound on epsilon of an ensemble's votes, computed once more.

    Args:
      events: what the teachers released, in any order.
      delta: failure probability.

    Raises:
      ParameterError: an event is no vote.
    """
    orders = np.array(rdp_privacy_accountant.DEFAULT_RDP_ORDERS)
    total = np.zeros(orders.size)
    for event in events:
        total += event.second_renyi(orders)
        delta -= event.delta
    if not delta > 0:
        return math.inf
    return float(rdp_privacy_accountant.compute_epsilon(orders, total, delta)[0])
