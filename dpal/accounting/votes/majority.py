"""What one released answer of a noisy yes-or-no vote can tell about one ballot.

Of n teachers v say yes. Both counts get noise N(0, sigma^2), or their difference N(0, 2 sigma^2)
at once, and all that is released is which is larger: yes with chance
Phi((2 v - n) / (sqrt(2) sigma)), or, where the larger count is checked first, that no answer is
given. One ballot moves v by one at most, so two worlds are two neighbouring rows of a table
of n + 1 chances, and every divergence of the answer is exact: no bound on the noise of the
counts is needed. The worst row costs 2/pi of the Gaussian bound order / sigma^2 for much noise
and small orders. (It gains by Rényi divergences only: over all rows, the largest
hockey-stick curve of an answer is again the Gaussian's.)

Source: own derivation, docs/voting.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.accounting.votes.noisy_threshold_check import log_checks

Floats = NDArray[np.float64]

# A moment near 1 keeps little of what it is above 1: about two roundings for each order are lost.
_ROUNDED_UP = 1 + 1e-11
_LOST = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Answers:
    """How one yes-or-no question is answered."""

    teachers: int
    sigma: float
    threshold: float | None = None
    threshold_sigma: float | None = None

    def log_chances(self, counts: Floats) -> Floats:
        """Log-chances of what can be released.

        Args:
          counts: (n,) votes for yes; fractions where ballots were clipped.

        Returns:
          (n, 2) of no and yes; or (n, 3), with "not answered" last. Exact far into the tails.
        """
        counts = np.asarray(counts, dtype=np.float64)
        margin = (2 * counts - self.teachers) / (math.sqrt(2) * self.sigma)
        said = np.stack([scipy.special.log_ndtr(-margin), scipy.special.log_ndtr(margin)], axis=1)
        if self.threshold is None:
            return said
        checked = self.log_checks(counts)
        return np.column_stack([said + checked[:, :1], checked[:, 1]])

    def log_checks(self, counts: Floats) -> Floats:
        """Log-chances that an answer is given, and that it is not, (n, 2)."""
        largest = np.maximum(counts, self.teachers - counts)
        return log_checks(largest, self.threshold, self.threshold_sigma)

    def by_counts(self, orders: Floats) -> Floats:
        """Divergence of the noisy counts themselves, (o,): no answer tells more."""
        checked = 0.0 if self.threshold_sigma is None else self.threshold_sigma**-2
        return orders * (1 / self.sigma**2 + checked / 2)


def divergence(mine: Floats, other: Floats, orders: Floats) -> Floats:
    """Rényi divergence of discrete laws, given by log-chances.

    Args:
      mine: (n, outcomes) of the first laws.
      other: (n, outcomes) of the second ones.
      orders: (o,), above 1.

    Returns:
      (n, o) divergences of the first from the second, 0 where they agree.
    """
    mine, other = mine[:, :, None], other[:, :, None]
    moments = scipy.special.logsumexp(orders * mine + (1 - orders) * other, axis=1)
    return np.asarray(np.maximum(moments / (orders - 1), 0.0))


@lru_cache(maxsize=128)
def move_divergences(answers: Answers, orders: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Divergences of an answer from what it were with one vote more, or one less.

    Args:
      answers: how it is given.
      orders: (o,).

    Returns:
      Two tables (teachers + 1, o) by votes for yes, each the larger of both directions: one
      vote more (0 for the last row) and one less (0 for the first).
    """
    chances = answers.log_chances(np.arange(answers.teachers + 1, dtype=np.float64))
    low, high, order_values = chances[:-1], chances[1:], np.array(orders)
    step = np.maximum(divergence(low, high, order_values), divergence(high, low, order_values))
    none = np.zeros((1, order_values.size))
    more, less = np.concatenate([step, none]), np.concatenate([none, step])
    for table in (more, less):
        table.flags.writeable = False
    return more, less


@lru_cache(maxsize=128)
def worst_divergence(answers: Answers, orders: tuple[float, ...]) -> Floats:
    """Divergence of one answer, whatever the votes are, shape (o,); below the Gaussian's.

    Rounded up, as its table is not: by little for noise of less than a thousand votes.
    """
    more, _ = move_divergences(answers, orders)
    values = np.array(orders)
    rounded = more.max(axis=0) * _ROUNDED_UP + _LOST * values / (values - 1)
    worst: Floats = np.minimum(rounded, answers.by_counts(values))
    worst.flags.writeable = False
    return worst
