"""Divergences of Skellam noise that one vote moves by one, of a count and of an answer read off it.

Skellam noise of variance v is the difference of two Poisson numbers of mean v / 2; its chance of
k is exp(-v) I_|k|(v), I the modified Bessel function. Ratios of neighbouring chances come from
the continued fraction of I, which is stable towards smaller orders, so that chances are exact far
into the tails. The law is symmetric: both directions of a move cost the same.

An answer says whether count + noise reaches a threshold. Whatever the count and the threshold
are, and whatever noise of others is known, its two chances are P(N >= m) and P(N >= m + 1) for
some whole number m; the worst m bounds all of them. So it does where there is more noise than is
charged: that is a mixture of thresholds, and Rényi divergences are quasi-convex.

Source: own derivation, docs/capc.md; the continued fraction: DLMF 10.33.1.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.accounting.votes.majority import divergence

Floats = NDArray[np.float64]

# Of sums of positive terms whose logarithms are known to about 1e-13: rounded up by more.
_ROUNDED_UP: Final = 1 + 1e-9
_MOST_ORDER: Final = 1 << 12  # far beyond any order at which a divergence is asked for


def log_ratios(variance: float, reach: int) -> Floats:
    """Logarithm of the chance of k + 1 over that of k, for k = 0, ..., reach - 1.

    Args:
      variance: of the noise, above 0.
      reach: how many; begun so far out that the first guess is forgotten.
    """
    ratios = np.empty(reach)
    following = variance / (2 * (reach + 1))
    for k in range(reach - 1, -1, -1):
        following = ratios[k] = 1 / (2 * (k + 1) / variance + following)
    return np.log(ratios)


@lru_cache(maxsize=32)
def skellam_log_masses(variance: float) -> Floats:
    """Log-chances of -K, ..., K; beyond K there is less than any float.

    Args:
      variance: of the noise, above 0.
    """
    start = math.log(float(scipy.special.ive(0, variance)))
    above = start + np.concatenate([[0.0], np.cumsum(log_ratios(variance, _reach(variance)))])
    masses = np.concatenate([above[:0:-1], above])
    masses.flags.writeable = False
    return masses


@lru_cache(maxsize=32)
def skellam_log_tails(variance: float) -> Floats:
    """Log-chances of at least -K, ..., at least K."""
    masses = skellam_log_masses(variance)
    tails = np.minimum(np.logaddexp.accumulate(masses[::-1])[::-1], 0.0)
    tails.flags.writeable = False
    return tails


@lru_cache(maxsize=128)
def count_divergence(variance: float, orders: tuple[float, ...]) -> Floats:
    """Rényi divergence of noise from itself moved by one, shape (o,)."""
    masses = skellam_log_masses(variance)
    found = [
        scipy.special.logsumexp(order * masses[:-1] + (1 - order) * masses[1:]) / (order - 1)
        for order in orders
    ]
    return np.asarray(np.maximum(found, 0.0) * _ROUNDED_UP)


@lru_cache(maxsize=128)
def answer_divergence(variance: float, orders: tuple[float, ...]) -> Floats:
    """Rényi divergence of one answer, whatever the votes are, shape (o,); below the count's."""
    tails = skellam_log_tails(variance)
    middle = tails.size // 2
    # Beyond sixty deviations an answer tells nothing; what it told there is below all others.
    # The first row is left out: its "no" lies beyond the table, and would seem to tell everything.
    near = slice(max(1, middle - _near(variance)), middle + _near(variance) + 1)
    yes = tails[near]
    # P(N < m) = P(N >= 1 - m); for the least m this lies beyond the table.
    no = np.append(tails, -np.inf)[2 * middle + 1 - np.arange(tails.size)][near]
    chances = np.stack([yes, no], axis=1)
    low, high, values = chances[1:], chances[:-1], np.array(orders)
    both = np.maximum(divergence(low, high, values), divergence(high, low, values))
    worst = both.max(axis=0) * _ROUNDED_UP
    return np.asarray(np.minimum(worst, count_divergence(variance, orders)))


def _reach(variance: float) -> int:
    """K: so far that terms of any order that is asked for have long fallen off."""
    return 64 + int(30 * math.sqrt(variance)) + _MOST_ORDER


def _near(variance: float) -> int:
    return 64 + int(60 * math.sqrt(variance))
