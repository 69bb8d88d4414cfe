"""What the winner of a noisy plurality can tell, computed once more, by none of our tables.

The bounds are those of docs/voting.md, as `dpal.accounting.votes.worst_winner` computes them; here
chances come from the error function and from midpoint sums over one noisy count, and moments from
their excess over 1, q f(p / q) with f(r) = r^order - 1 - order (r - 1), outcome by outcome.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CELL = 0.2  # of sums over a noisy count, in standard deviations
_LOW, _ABOVE, _HIGH = -12.0, 5.0, 13.0
_FAR = 4.0  # order / sigma, from where what the counts tell is taken
_MANY, _EVERY = 24, 4  # of more orders every fourth is looked at, and chords lie between them
_TINY = 1e-290


def second_winner(
    *,
    teachers: int,
    classes: int,
    sigma: float,
    threshold: float | None,
    threshold_sigma: float | None,
    orders: Floats,
) -> Floats:
    """Bounds the divergence of one answer, whatever the votes are, (o,).

    Args:
      teachers: that vote.
      classes: that they can name, above 2.
      sigma: noise of every count.
      threshold: of the check; None where all are answered.
      threshold_sigma: noise of the check.
      orders: (o,), above 1.
    """
    checked = 0.0 if threshold_sigma is None else threshold_sigma**-2
    counts = orders * (1 / sigma**2 + checked / 2)
    near = np.flatnonzero(orders <= _FAR * sigma)
    knots = near if near.size <= _MANY else np.union1d(near[::_EVERY], near[-1:])
    logs = np.zeros(knots.size)
    level, ahead = (
        _Answers(-np.arange(0.0, 10.0, 0.1) - apart / sigma, sigma, cell=_CELL / 2)
        for apart in (1, 2)
    )
    table = None
    if threshold is not None and threshold_sigma is not None:
        furthest = math.ceil(15 * sigma + float(orders[orders <= _FAR * sigma].max(initial=0.0)))
        gaps = np.arange(1, min(teachers, furthest) + 1)
        table = _Checked(teachers, classes, sigma, threshold, threshold_sigma, gaps)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for position, order in enumerate(orders[knots]):
            excess = max(float(level.excess(order, back=back).max()) for back in (False, True))
            if table is not None:
                gives, gets = (float(ahead.excess(order, back=b).max()) for b in (False, True))
                excess = table.worst(order, whatever=excess, gives=gives, gets=gets)
            logs[position] = math.log1p(excess)
    if knots.size:
        # The logarithm of a moment is convex in its order, and 0 at 1.
        at = orders[near]
        chords = np.interp(at, np.append(1.0, orders[knots]), np.append(0.0, logs))
        found = np.full(orders.size, math.inf)
        found[near] = chords / (at - 1)
        counts = np.fmin(found, counts)
    return np.asarray(counts)


def _cdf(x: NDArray[np.floating]) -> Floats:
    return np.asarray(scipy.special.erfc(-x / math.sqrt(2)) / 2)


def _excess(p: Floats, q: Floats, order: float) -> Floats:
    """What an outcome of these chances adds to the moment of the first law, beyond its share."""
    ratio = p / np.maximum(q, _TINY)
    # Near 1 the difference of powers is lost in rounding: its series instead.
    apart = ratio - 1
    series = order * (order - 1) / 2 * apart**2 * (1 + (order - 2) / 3 * apart)
    powers = ratio**order - 1 - order * apart
    return np.where(q > _TINY, q * np.where(np.abs(order * apart) < 1e-3, series, powers), 0.0)


class _Answers:
    """Chances of "a, b or another" before and after a vote moves, by what another reaches."""

    def __init__(self, behind: Floats, sigma: float, cell: float = _CELL) -> None:
        """Sums over one count, from the top down.

        Args:
          behind: (w,) how far b is behind a, in standard deviations, below 0.
          sigma: of the noise, in votes.
          cell: of the sums.
        """
        self.cell, move = cell, 1 / sigma
        self.edges = np.arange(_LOW, _ABOVE, cell)
        self.worlds = [
            self._chances(a, b)
            for a, b in ((0.0, behind[:, None]), (-move, behind[:, None] + move))
        ]

    def _chances(self, a: float, b: Floats) -> list[Floats]:
        middles = np.arange(_LOW + self.cell / 2, _HIGH, self.cell)
        density = self.cell / math.sqrt(2 * math.pi)
        first = density * np.exp(-((middles - a) ** 2) / 2) * _cdf(middles - b)
        second = density * np.exp(-((middles - b) ** 2) / 2) * _cdf(middles - a)
        a_wins, b_wins = (
            np.cumsum(part[:, ::-1], axis=1)[:, ::-1][:, : self.edges.size]
            for part in (first, second)
        )
        return [a_wins, b_wins, _cdf(self.edges - a) * _cdf(self.edges - b)]

    def excess(self, order: float, *, back: bool) -> Floats:
        """(w, z) excess of the moment, of the first world or, going back, of the second."""
        first, second = self.worlds[::-1] if back else self.worlds
        parts = [_excess(p, q, order) for p, q in zip(first, second, strict=True)]
        return np.asarray(sum(parts))


class _Checked:
    """The same where a threshold decides whether an answer is given."""

    def __init__(
        self,
        teachers: int,
        classes: int,
        sigma: float,
        threshold: float,
        threshold_sigma: float,
        gaps: NDArray[np.int64],
    ) -> None:
        """Notes what no order changes."""
        votes = np.arange(teachers + 2)
        self.passes = _cdf((votes - threshold) / threshold_sigma)
        self.fails = _cdf((threshold - votes) / threshold_sigma)
        self.teachers, self.classes, self.sigma, self.gaps = teachers, classes, sigma, gaps
        self.answers = _Answers(-gaps / sigma, sigma)

    def worst(self, order: float, *, whatever: float, gives: float, gets: float) -> float:
        """Largest excess of a moment over all leading counts.

        Args:
          order: of the moment.
          whatever: excess of the winner's, for any votes.
          gives: the same where the only leader gives a vote away.
          gets: where it gets it back.
        """
        teachers, half = self.teachers, self.teachers // 2
        few = np.arange(math.ceil(teachers / self.classes), half + 1)
        found = [
            self._moment(order, here, there, np.array([excess]))
            for here, there, excess in (
                (few, few, whatever),
                (few, few - 1, gives),
                (few - 1, few, gets),
            )
        ]
        for back in (False, True):
            table = self.answers.excess(order, back=back)
            rises = np.maximum(np.diff(table, axis=1), 0.0)
            for gap in range(1, teachers + 1):
                tops = np.arange(max(half + 1, gap), (teachers + gap) // 2 + 1)
                if not tops.size:
                    continue
                row, rest = min(gap, len(table)) - 1, teachers - 2 * tops + gap
                edges = self.answers.edges[:-1]
                below = _cdf(edges + (tops - rest)[:, None] / self.sigma)
                below = below * _cdf(edges + tops[:, None] / self.sigma) ** (self.classes - 3)
                mean = np.minimum(table[row, 0] + (1 - below) @ rises[row], whatever)
                moved = np.maximum(tops - 1, tops - gap + 1)
                here, there = (moved, tops) if back else (tops, moved)
                found.append(self._moment(order, here, there, mean))
        return max(found)

    def _moment(
        self, order: float, here: NDArray[np.int64], there: NDArray[np.int64], answered: Floats
    ) -> float:
        p, q = self.passes[here], self.passes[there]
        check = _excess(p, q, order) + _excess(self.fails[here], self.fails[there], order)
        passed = q * (p / np.maximum(q, _TINY)) ** order
        return float(np.max(check + np.where(q > _TINY, passed * answered, 0.0), initial=0.0))
