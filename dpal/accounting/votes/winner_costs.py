"""What the winner of a noisy plurality tells about one ballot, for the votes that were cast.

The cost of a histogram is, order by order, the largest Rényi divergence of the released answer
over all moves of one vote, in both directions. The logarithm of a moment is convex in its order,
and 0 at order 1, so that it is below its chords: moments of all moves are computed at a few orders
that double, by squaring, and only moves whose chords rise above what the best ones reach are looked
at closer. None that could be the largest is left out.

What chances may be off by is added (`dpal.accounting.votes.winner_chances`): numbers are never
below the truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.votes.mechanisms import Confidence
from dpal.accounting.votes.noisy_threshold_check import log_checks
from dpal.accounting.votes.winner_chances import Moves, histograms_of, moves_of, off_by
from dpal.errors import ParameterError

Floats = NDArray[np.float64]

_LARGE = 690.0  # exp of it is a number
_POINTS = 9  # of a chord, both ends among them
_HUGE = 1e300
_ROUNDED = 1e-13  # of logarithms of moments
_FAR = 250.0  # from such logarithms of chances on, their rounding is in proportion


def plurality_divergences(
    votes: NDArray[np.integer],
    *,
    classes: int,
    sigma: float,
    orders: Floats,
    confidence: Confidence | None = None,
) -> Floats:
    """Largest Rényi divergence of each winner when one ballot is replaced, in both directions.

    Args:
      votes: (q, bins) votes of the classes that have any, in any order; zeros may be left out.
      classes: how many there are in all.
      sigma: standard deviation of the noise on every count, in votes.
      orders: (o,), above 1 and rising.
      confidence: when a winner is released; None for always.

    Returns:
      (q, o) divergences, never below the truth.

    Raises:
      ParameterError: a count is negative, none is positive, or there are more than classes.

    >>> cost = plurality_divergences(
    ...     np.array([[40, 10], [25, 25]]), classes=10, sigma=5.0, orders=np.array([2.0])
    ... )
    >>> cost.round(5).tolist()
    [[6e-05], [0.05087]]
    """
    check.positive(sigma=sigma)
    cast = (votes > 0).sum(axis=1)
    if (votes < 0).any() or (cast > classes).any() or not cast.all():
        raise ParameterError(f"{votes.shape[1]} counts cannot be votes for {classes} classes")
    costs = np.zeros((len(votes), orders.size))
    for alike in histograms_of(votes, classes):
        for which, moves in moves_of(alike, classes=classes, sigma=sigma):
            if moves.moved.size:
                rows, found = alike.rows[which], _checked(moves, confidence)
                costs[rows] = np.maximum(costs[rows], _largest(found, orders, classes))
    return costs


def _checked(moves: Moves, confidence: Confidence | None) -> Moves:
    """The same where a winner is released above a threshold only, and "no answer" else."""
    if confidence is None:
        return moves
    shape = moves.moved.shape
    leaders = np.broadcast_to(moves.leaders[:, None], shape)
    worlds = []
    for logs, count in ((moves.mine, leaders), (moves.other, moves.moved)):
        checks = log_checks(
            count.ravel().astype(np.float64), confidence.threshold, confidence.sigma
        ).reshape(*shape, 2)
        worlds.append(np.concatenate([logs + checks[..., :1], checks[..., 1:]], axis=2))
    real = moves.many.any(axis=2, keepdims=True)
    many = np.concatenate([moves.many, real], axis=2)
    mine, other = (np.where(many > 0, world, 0.0) for world in worlds)
    return Moves(mine, other, many, moves.leaders, moves.moved)


@dataclass(frozen=True, eq=False)
class _Curves:
    """Log-moments of all moves in both directions, by order.

    Attributes:
      logs: (b, c, k) log-chances of outcomes of the first law, all that are alike together.
      ratios: (b, c, k) how far these are above the second one's.
      chances: (b, c, k) of the first law.
      highest: (b, c) ratio.
      far: (b, c) whether a chance is too small for a number.
    """

    logs: Floats
    ratios: Floats
    chances: Floats
    highest: Floats
    far: NDArray[np.bool_]

    @classmethod
    def of(cls, moves: Moves) -> _Curves:
        """Both directions, one after the other."""
        with np.errstate(divide="ignore"):
            many = np.log(moves.many)
        apart = moves.mine - moves.other
        logs = np.concatenate([many + moves.mine, many + moves.other], axis=1)
        ratios = np.concatenate([apart, -apart], axis=1)
        with np.errstate(under="ignore"):
            chances = np.exp(logs)
        far = ((logs < -_LARGE) & (logs > -np.inf)).any(axis=2)
        return cls(logs, ratios, chances, ratios.max(axis=2), np.asarray(far))

    def at(self, rows: NDArray[np.int64], curves: NDArray[np.int64], powers: Floats) -> Floats:
        """Some of them, (n, o).

        Args:
          rows: (n,) histograms.
          curves: (n,) their moves.
          powers: (o,) orders less 1, rising.
        """
        far = self.far[rows, curves]
        if far.any():
            found = np.empty((rows.size, powers.size))
            found[~far] = self.at(rows[~far], curves[~far], powers)
            sums = self.logs[rows[far], curves[far], :, None] + (
                self.ratios[rows[far], curves[far], :, None] * powers
            )
            found[far] = scipy.special.logsumexp(sums, axis=1)
            return found
        grown = self.ratios[rows, curves][:, :, None] * powers
        # Whose powers are too large for a number are taken relative to the largest.
        highest = self.highest[rows, curves]
        large = float(highest.max(initial=0.0)) * powers[-1] > _LARGE
        excess = np.maximum(highest[:, None] * powers - _LARGE, 0.0) if large else 0.0
        if large:
            grown -= np.asarray(excess)[:, None]
        with np.errstate(under="ignore"):
            np.exp(grown, out=grown)
        return np.asarray(np.log((self.chances[rows, curves][:, None] @ grown)[:, 0]) + excess)

    def between(self, rows: NDArray[np.int64], curves: NDArray[np.int64], powers: Floats) -> Floats:
        """Some of them at evenly spaced orders; infinite where numbers do not hold them, (n, o)."""
        found = np.empty((powers.size, rows.size))
        ratios = self.ratios[rows, curves]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            step = np.exp(ratios * (powers[1] - powers[0]))
            grown = np.exp(ratios * powers[0])
            grown *= self.chances[rows, curves]
            alike = np.ones(grown.shape[1])
            for each in found:
                np.matmul(grown, alike, out=each)
                grown *= step
            np.log(found, out=found)
        found[:, self.far[rows, curves]] = np.inf
        found[np.isnan(found)] = np.inf
        return found.T

    def doubling(self, first: float, count: int) -> Floats:
        """All of them at orders 1, and then 1 + first, 1 + 2 first, ...: (count + 1, b, c)."""
        found = np.empty((count + 1, *self.far.shape))
        with np.errstate(all="ignore"):
            grown = np.exp(self.ratios * first)
            for step in range(count):
                np.einsum("bck,bck->bc", self.chances, grown, out=found[step + 1])
                np.multiply(grown, grown, out=grown)
            np.log(found, out=found)
        real = self.logs.max(axis=2) > -np.inf
        for step in range(count):
            rows, curves = np.nonzero(real & (self.far | ~(found[step + 1] < np.inf)))
            if rows.size:
                power = np.array([first * 2.0**step])
                found[step + 1, rows, curves] = self.at(rows, curves, power)[:, 0]
        found[0] = np.where(real, 0.0, -np.inf)
        return found


def _largest(moves: Moves, orders: Floats, classes: int) -> Floats:
    """The largest divergence of each histogram, (b, o)."""
    curves, powers = _Curves.of(moves), orders - 1
    first = 2.0 ** math.floor(math.log2(powers[0]))
    count = max(0, math.ceil(math.log2(powers[-1] / first))) + 1
    knots = np.append(0.0, first * 2.0 ** np.arange(count))
    ends = curves.doubling(first, count)
    cells = np.clip(np.searchsorted(knots, powers) - 1, 0, count - 1)
    largest = np.empty((len(moves.mine), orders.size))
    for cell in np.unique(cells):
        part, inside = slice(cell, cell + 2), cells == cell
        largest[:, inside] = _in_cell(curves, ends[part], knots[part], powers[inside])
    # A chance of exp(-1000) is the sum of logarithms as large.
    lowest = np.minimum(moves.mine, moves.other).min(axis=(1, 2))
    off = off_by(classes) * np.maximum(1.0, -lowest / _FAR)[:, None]
    return np.asarray((np.maximum(largest, 0.0) + (orders + powers) * off) / powers)


def _in_cell(curves: _Curves, ends: Floats, knots: Floats, powers: Floats) -> Floats:
    """The largest log-moments between two orders at which all are known, (b, o).

    Args:
      curves: of all moves.
      ends: (2, b, c) log-moments at these orders.
      knots: (2,) both orders less 1.
      powers: (o,) orders less 1, between them.
    """
    rows = np.arange(ends.shape[1])
    best, first = ends[1].argmax(axis=1), ends[0].argmax(axis=1)
    largest = curves.at(rows, best, powers)
    # Who is largest where the cell begins, if that is another: it spares looking at many below it.
    other = np.flatnonzero(first != best)
    if other.size:
        largest[other] = np.maximum(largest[other], curves.at(other, first[other], powers))
    # A line below what is reached so far: who is below it at both ends is below in between.
    slope = (ends[1][rows, best] - ends[0][rows, first]) / (knots[1] - knots[0])
    base = (largest - slope[:, None] * powers).min(axis=1) + _ROUNDED
    low, high = (base + slope * knot for knot in knots)
    above = (ends[0] > low[:, None]) | (ends[1] > high[:, None])
    above[rows, best] = above[rows, first] = False
    some, which = np.nonzero(above)
    if not some.size:
        return largest
    beside = largest + _ROUNDED
    # One chord between both ends leaves an eighth of them, most of the time.
    along = (powers - knots[0]) / (knots[1] - knots[0])
    pairs = np.stack([ends[0][some, which], ends[1][some, which]], axis=1)
    below = pairs @ np.stack([1 - along, along]) <= beside[some]
    close = np.flatnonzero(~below.all(axis=1))
    if not close.size:
        return largest
    some, which = some[close], which[close]
    at = np.linspace(float(knots[0]), float(knots[1]), _POINTS)
    heights = np.empty((some.size, at.size))
    heights[:, 0], heights[:, -1] = pairs[close].T
    heights[:, 1:-1] = curves.between(some, which, at[1:-1])
    # Chords between these points, as weights of each. What is infinite is looked at in any case.
    heights[np.isinf(heights)] = _HUGE
    chords = heights @ np.maximum(1 - np.abs(powers - at[:, None]) / (at[1] - at[0]), 0.0)
    close = np.flatnonzero((chords > beside[some]).any(axis=1))
    if close.size:
        some, which = some[close], which[close]
        found, starts = np.unique(some, return_index=True)
        more = np.maximum.reduceat(curves.at(some, which, powers), starts, axis=0)
        largest[found] = np.maximum(largest[found], more)
    return largest
