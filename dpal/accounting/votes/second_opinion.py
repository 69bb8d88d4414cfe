"""The second opinion on an ensemble's votes, by Rényi divergences.

Nothing of our tables and curves is used: chances come from the error function, divergences
from plain sums over all counts, orders and conversion from Google's dp-accounting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import scipy
from dp_accounting.rdp import rdp_privacy_accountant
from numpy.typing import NDArray

from dpal.accounting.events import NoisyMajorities, NoisyVotes, VotesWithin

Curve = NDArray[np.float64]


def epsilon_of_votes(
    events: Iterable[NoisyVotes | NoisyMajorities | VotesWithin], *, delta: float
) -> float:
    """Upper bound on epsilon of an ensemble's votes, computed once more.

    Args:
      events: what the teachers released, in any order.
      delta: failure probability.
    """
    orders = np.array(rdp_privacy_accountant.DEFAULT_RDP_ORDERS)
    total = np.zeros(orders.size)
    for event in events:
        if isinstance(event, VotesWithin):
            total += np.where(np.abs(orders - event.order) < 1e-9, event.divergence, np.inf)
            delta -= event.failure
        elif isinstance(event, NoisyVotes):
            total += orders / (2 * event.noise_multiplier**2)
        else:
            total += event.answers * _worst_answer(event, orders)
    if not delta > 0:
        return math.inf
    return float(rdp_privacy_accountant.compute_epsilon(orders, total, delta)[0])


def _worst_answer(event: NoisyMajorities, orders: Curve) -> Curve:
    """Divergence of one answer for the worst votes; no more than the noisy counts'."""
    votes = np.arange(event.teachers + 1)
    margins = (2 * votes - event.teachers) / (2 * event.sigma)
    chances = [scipy.special.erfc(-margins) / 2, scipy.special.erfc(margins) / 2]
    if event.threshold is not None and event.threshold_sigma is not None:
        short = event.threshold - np.maximum(votes, event.teachers - votes)
        given = scipy.special.erfc(short / (math.sqrt(2) * event.threshold_sigma)) / 2
        refused = scipy.special.erfc(-short / (math.sqrt(2) * event.threshold_sigma)) / 2
        chances = [*(given * one for one in chances), refused]
    table = np.maximum(np.stack(chances), 1e-300)[:, :, None]
    worst = np.zeros(orders.size)
    for p, q in ((table[:, 1:], table[:, :-1]), (table[:, :-1], table[:, 1:])):
        with np.errstate(over="ignore"):
            moments = (q * (p / q) ** orders).sum(axis=0)
        worst = np.maximum(worst, np.log(moments.max(axis=0)) / (orders - 1))
    return np.minimum(worst, orders / (2 * event.answers * event.noise_multiplier**2))
