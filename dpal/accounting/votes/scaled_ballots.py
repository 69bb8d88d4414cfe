"""Ballots scaled down to a norm, in whole parts of a vote: what a positive counts, what it costs.

A ballot with m positives counts `entries[m - 1]` parts for each of them. Two ballots with m and m'
positives, o of them in common, are apart by |c(m) - c(m')| in o counts, by c(m) in m - o counts and
by c(m') in m' - o counts; noise on counts is independent, so that divergences add up. The sum is
linear in o, so that the worst o is the least or the largest that can be. All pairs of sizes are
tried, at every order: there is no other change that a ballot can make.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dpal.accounting.votes.majority import divergence
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.skellam import log_ratios

MOST_SCALED_SIGMA: Final = 60.0  # in votes; beyond, tables take too long
PARTS: Final = 16  # of a vote: a power of two, so that variances are scaled without rounding

Floats = NDArray[np.float64]
Orders = tuple[float, ...]

_ROUNDED_UP: Final = 1 + 1e-9
_ROUNDED_UP_ANSWERS: Final = 1 + 1e-6  # sums of thousands of chances, and differences of these
_FAR: Final = 40.0  # deviations, up to which answers are looked at one by one
_UNKNOWN: Final = 1e150  # stands for an infinite cost, of which there may be 0 times
_EVERY: Final = 4  # of the orders, at which they are
_EPS: Final = float(np.finfo(np.float64).eps)
_NEAR: Final = 60.0  # logarithm: terms smaller than the largest by more are counted as if so large


def scaled_entries(mechanism: Mechanism, labels: int, limit: float) -> tuple[int, ...]:
    """Parts that a positive counts in ballots of 1, 2, ..., `labels` positives; rounded down.

    The largest whole numbers up to `PARTS` with which no ballot is longer than the limit, by the
    Euclidean norm or the sum of its entries.
    """
    exact = Fraction(limit)
    if mechanism is Mechanism.TAU_L2:
        found = [math.isqrt(int(PARTS**2 * exact**2 / m)) for m in range(1, labels + 1)]
    else:
        found = [int(PARTS * exact / m) for m in range(1, labels + 1)]
    return tuple(min(PARTS, entry) for entry in found)


def worst_change(entries: Sequence[int], costs: Floats) -> Floats:
    """The dearest change that one ballot can make, shape (o,).

    Args:
      entries: as `scaled_entries` gives them.
      costs: (moves, o) what it costs that a count moves by 0, 1, 2, ... parts.
    """
    labels, parts = len(entries), np.array([0, *entries])
    sizes = np.arange(labels + 1)
    mine, other = (grid.ravel() for grid in np.meshgrid(sizes, sizes, indexing="ij"))
    apart, own, theirs = np.abs(parts[mine] - parts[other]), parts[mine], parts[other]
    costs, worst = np.minimum(costs, _UNKNOWN), np.zeros(costs.shape[1])
    for common in (np.maximum(0, mine + other - labels), np.minimum(mine, other)):
        total = (
            common[:, None] * costs[apart]
            + (mine - common)[:, None] * costs[own]
            + (other - common)[:, None] * costs[theirs]
        )
        worst = np.maximum(worst, total.max(axis=0))
    return np.where(worst < _UNKNOWN, worst, np.inf)


@lru_cache(maxsize=32)
def moved_counts(variance: float, most: int, orders: Orders) -> Floats:
    """Rényi divergence of Skellam noise from itself moved by 0, ..., `most`, shape (most + 1, o).

    An upper bound: what lies beyond the table, what is left out as small, and rounding are added.
    """
    ratios = log_ratios(variance, _reach(variance, most, max(orders)))
    last = len(ratios)
    start = math.log(_at_zero(variance))
    above = start + np.concatenate([[0.0], np.cumsum(ratios)])
    masses = np.concatenate([above[:0:-1], above])  # of -last, ..., last
    steps = np.concatenate([-ratios[::-1], ratios])  # from each of them to the next
    doubt = 4 * _EPS * (np.abs(np.arange(-last, last + 1)) + 8) * (np.abs(masses) + 1)
    found, losses = np.zeros((most + 1, len(orders))), np.zeros(len(masses))
    for moved in range(1, most + 1):
        # Not by the difference of two logarithms, which would lose what they have in common.
        losses = losses[:-1] - steps[moved - 1 :]
        kept = len(losses)
        for place, order in enumerate(orders):
            terms = masses[:kept] + (order - 1) * losses
            top = float(terms.max())
            near = terms > top - _NEAR
            moment = np.exp(terms[near] - top).sum() + kept * math.exp(-_NEAR)
            beyond = _beyond(variance, order, moved, last) - top
            moment += math.exp(beyond) if beyond <= 0 else math.inf
            slack = float(doubt[:kept][near].max()) + order * 8 * _EPS * moved
            found[moved, place] = (top + math.log(moment) + slack) / (order - 1)
    found[1:] = np.maximum(found[1:], 0.0) * _ROUNDED_UP
    found.flags.writeable = False
    return found


@lru_cache(maxsize=32)
def moved_answers(variance: float, most: int, orders: Orders) -> Floats:
    """The same of one answer, whatever the votes are: for no move is it above the count's.

    An answer says whether noise is at least some whole number m, and the worst m bounds all. Beyond
    the table it tells less than `_answer_beyond`; an order at which that is not negligible has the
    count's cost. Log-moments are convex in the order, also the largest of several: between some
    orders the chord is charged, which lies above.
    """
    last = 64 + int(_FAR * math.sqrt(variance))
    above = math.log(_at_zero(variance)) + np.concatenate(
        [[0.0], np.cumsum(log_ratios(variance, last + 1))]
    )
    masses = np.concatenate([above[:0:-1], above])
    tails = np.minimum(np.logaddexp.accumulate(masses[::-1])[::-1], 0.0)
    # Chances of at least m and of less, m = 1, 2, ...; that N >= -j is as likely as that N < j + 1.
    chances = np.stack([tails[1:], tails[:0:-1]], axis=1)[last + 1 :]
    counts, all_orders = moved_counts(variance, most, orders), np.array(orders)
    some = np.unique(np.append(np.arange(0, len(orders), _EVERY), len(orders) - 1))
    values, found = all_orders[some], np.zeros((most + 1, len(orders)))
    for moved in range(1, most + 1):
        # Moves that end at or below 0 are moves above it, reversed.
        near = np.concatenate([chances[:moved, ::-1][::-1], chances])
        low, high = near[moved:], near[:-moved]
        both = np.maximum(divergence(low, high, values), divergence(high, low, values))
        beyond = np.array([_answer_beyond(variance, order, moved, last) for order in values])
        moments = (values - 1) * both.max(axis=0) * _ROUNDED_UP_ANSWERS + 1e-13
        moments[beyond > -_NEAR] = np.inf
        chords = np.interp(all_orders, values, moments) / (all_orders - 1)
        found[moved] = np.fmin(chords, counts[moved])
    found.flags.writeable = False
    return found


def _answer_beyond(variance: float, order: float, moved: int, last: int) -> float:
    """Bounds the logarithm of what an answer's moment has above 1, for all m from the table's end.

    The moment is at most 1 + T (T / T')**(a - 1) in one direction, with T = P(N >= m) and
    T' = P(N >= m + d), and at most (1 - T)**(1 - a) + T in the other, which is no more than a few
    times as far above 1. T is bounded by Chernoff; T(m) <= T(m + 1) (1 + 1 / r(m)), as r falls. The
    bound falls from `start` on, as its slope is below d (a - 1) / sqrt(m**2 + v**2) - asinh(m / v),
    which falls, too. Infinite where it does not.
    """
    start = last - moved
    if math.asinh(start / variance) <= moved * (order - 1) / math.hypot(start, variance):
        return math.inf
    chance = -start * math.asinh(start / variance) + math.hypot(start, variance) - variance
    ratio = math.log1p(math.exp(math.asinh((start + moved + 1) / variance)))
    return chance + moved * (order - 1) * ratio


def _at_zero(variance: float) -> float:
    from scipy.special import ive

    return float(ive(0, variance))


def _reach(variance: float, most: int, order: float) -> int:
    """So far that all terms of these moves and orders have long fallen off; see `_beyond`."""
    return 64 + int(60 * math.sqrt(variance)) + 2 * most * int(order + 1)


def _beyond(variance: float, order: float, moved: int, last: int) -> float:
    """Bounds the logarithm of all terms beyond the table, on both sides.

    p(k) is the chance of k, r(k) = p(k + 1) / p(k), which falls with k and is
    1 / (2 (k + 1) / v + r(k + 1)), so that r(k) >= exp(-asinh((k + 1) / v)) for k >= 0; and
    p(k) <= exp(-k asinh(k / v) + sqrt(k**2 + v**2) - v) by Chernoff. With both, the term
    p(k)**a p(k + d)**(1 - a) = p(k) prod r**(1 - a) is at most u(k), the logarithm of which is
    concave; so the sum from k on is at most u(k) / (1 - u'), with u' = u(k + 1) / u(k) < 1. Far
    below zero a term is smaller than its chance.
    """

    def bound(k: int) -> float:
        chance = -k * math.asinh(k / variance) + math.hypot(k, variance) - variance
        return chance + moved * (order - 1) * math.asinh((k + moved + 1) / variance)

    first = last - moved + 1
    slope = bound(first + 1) - bound(first)
    if not slope < 0:
        return math.inf
    right = bound(first) - math.log(-math.expm1(slope))
    left = -last * math.asinh(last / variance) + math.hypot(last, variance) - variance
    return float(logsumexp([right, left]))
