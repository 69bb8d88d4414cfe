"""Tests that a sampler does what is claimed; each returns the chance of worse by accident.

All are two-sided. Where a distribution is approximated, two of its moments are exact and
the draws are many, so that a p-value of 1e-6 is right within a small factor.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

Values = NDArray[np.float64]


def of_deviation(errors: float) -> float:
    """P-value of a deviation, in standard errors of a normal statistic."""
    return float(2 * scipy.stats.norm.sf(abs(errors)))


def of_count(hits: int, draws: int, chance: float) -> float:
    """P-value of a number of hits, exact."""
    below = scipy.stats.binom.cdf(hits, draws, chance)
    above = scipy.stats.binom.sf(hits - 1, draws, chance)
    return min(1.0, 2 * float(min(below, above)))


def of_scale(values: Values, scale: float) -> float:
    """P-value of the mean square of centred normal values with a claimed deviation."""
    total = float(np.sum(np.square(values / scale)))
    below, above = scipy.stats.chi2.cdf(total, values.size), scipy.stats.chi2.sf(total, values.size)
    return min(1.0, 2 * float(min(below, above)))


def of_normality(values: Values) -> float:
    """P-value of standard normal values by Kolmogorov and Smirnov's largest distance."""
    return float(scipy.stats.kstest(values, "norm").pvalue)


def of_correlation(first: Values, second: Values) -> float:
    """P-value of the correlation of two independent rows of centred values."""
    spread = math.sqrt(float(first @ first) * float(second @ second))
    if spread == 0:
        return 0.0  # no noise at all
    return of_deviation(float(first @ second) / spread * math.sqrt(first.size))


def of_frequencies(seen: NDArray[np.int64], chances: Values) -> float:
    """P-value of how often each outcome was seen; rare ones are put together."""
    draws = int(seen.sum())
    order = np.argsort(chances)
    pooled_seen, pooled_chances = [0], [0.0]
    for outcome in order:
        if draws * pooled_chances[-1] >= 20:
            pooled_seen.append(0)
            pooled_chances.append(0.0)
        pooled_seen[-1] += int(seen[outcome])
        pooled_chances[-1] += float(chances[outcome])
    if len(pooled_seen) == 1:
        return 1.0
    expected = draws * np.array(pooled_chances) / sum(pooled_chances)
    total = float(np.sum((np.array(pooled_seen) - expected) ** 2 / expected))
    return float(scipy.stats.chi2.sf(total, len(pooled_seen) - 1))


def of_batch_sizes(sizes: Values, records: int, rate: float) -> float:
    """P-value of the variance of batch sizes if all records join independently.

    Fixed sizes have none; records that come together have more. The variance of n coins is
    n q (1-q) only if every two of them are uncorrelated.
    """
    variance = records * rate * (1 - rate)
    excess = (1 - 6 * rate * (1 - rate)) / variance
    return _of_dispersion(np.square(sizes - records * rate) / variance, 2 + excess)


def of_joins(counts: Values, steps: int, rate: float) -> float:
    """P-value of the variance of how often each record joined in a number of steps.

    Shuffling lets each join equally often.
    """
    return of_batch_sizes(counts, steps, rate)


def of_succession(joined: NDArray[np.bool_], rate: float) -> float:
    """P-value of whether joining one batch says nothing about joining the next.

    Args:
      joined: (steps, n).
      rate: of each of them.
    """
    centred = joined - rate
    pairs = centred[1:] * centred[:-1]
    # Uncorrelated products of independent coins: variance (q (1-q))^2 each.
    deviation = rate * (1 - rate) * math.sqrt(pairs.size)
    return of_deviation(float(pairs.sum()) / deviation)


def _of_dispersion(terms: Values, variance: float) -> float:
    """P-value of a sum of terms of mean 1 and known variance, as a scaled chi-square."""
    scale = variance / 2
    freedom = terms.size / scale
    total = float(terms.sum()) / scale
    below, above = scipy.stats.chi2.cdf(total, freedom), scipy.stats.chi2.sf(total, freedom)
    return min(1.0, 2 * float(min(below, above)))


def bonferroni(*p_values: float) -> float:
    """One p-value for several: the least, times how many there are."""
    return min(1.0, len(p_values) * min(p_values))
