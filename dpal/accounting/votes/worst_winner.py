"""What the winner of a noisy plurality can tell about one ballot, whatever the votes are.

Of m classes, each count gets noise N(0, sigma^2), and the class in front is released: always, or
only where the largest count, with noise of its own, is above a threshold. A ballot that is replaced
moves one vote from a class a to a class b. Three bounds, each proven in docs/voting.md, hold
together for every histogram:

- Given what the best other class reaches, an answer is "a", "b" or "another", and the largest
  moment of that over all of it (`any_winner`) holds whatever the counts are.
- Where a class has more than half of the votes, few others can reach it. If it gives or takes the
  vote, what the best other class reaches is most likely to be high where one class has all the
  remaining votes, which bounds the mean of that moment from above (`_leader_moves`).
- If two others exchange it, they matter only where they come to the front (`_losers_move`).

Check and answer are drawn independently, so that the moment of a checked answer is that of the
answer times that of passing, plus that of not passing: exact for each count of the leader.

Source: own derivation, docs/voting.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.accounting.votes.majority import Answers, worst_divergence
from dpal.accounting.votes.noisy_threshold_check import log_checks

Floats = NDArray[np.float64]

# Whose winners are charged like this; it takes their square of time.
MOST_PLURALITY_TEACHERS = 1_000

# Of grids and integrals, all in standard deviations of the noise.
_STEP = 0.2
_BELOW, _ABOVE = 8.0, 5.0  # the leader: what the best other class reaches
_REACH = 12.0  # of an integral over one noisy count
_LOWEST, _APART = 1.1, 0.06  # of the orders that are computed, evenly by their logarithms
FAR = 4.0  # order / sigma, from where an answer tells nearly all that the counts do
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_HALF_LOG_TWO_PI = math.log(2 * math.pi) / 2


@dataclass(frozen=True)
class Winners:
    """How one question with several answers is answered."""

    teachers: int
    classes: int
    sigma: float
    threshold: float | None = None
    threshold_sigma: float | None = None

    def log_checks(self, leaders: Floats) -> Floats:
        """Log-chances that an answer is given, and that it is not, (n, 2), by the largest count."""
        return log_checks(leaders, self.threshold, self.threshold_sigma)

    @property
    def yes_or_no(self) -> Answers:
        """The same question of two classes."""
        return Answers(self.teachers, self.sigma, self.threshold, self.threshold_sigma)

    def by_counts(self, orders: Floats) -> Floats:
        """Divergence of the noisy counts themselves, (o,): no answer tells more."""
        return self.yes_or_no.by_counts(orders)


@lru_cache(maxsize=128)
def worst_winner(winners: Winners, orders: tuple[float, ...]) -> Floats:
    """Bounds the Rényi divergence of one answer, in both directions and whatever the votes are.

    Args:
      winners: how it is given.
      orders: (o,), above 1.

    Returns:
      (o,) divergences; never above those of the noisy counts.
    """
    order_values = np.array(orders)
    worst = winners.by_counts(order_values)
    highest = min(float(order_values.max()), FAR * winners.sigma)
    if winners.classes == 2:
        worst = np.minimum(worst, worst_divergence(winners.yes_or_no, orders))
    elif highest > _LOWEST and winners.teachers <= MOST_PLURALITY_TEACHERS:
        # The logarithm of a moment is convex in its order, and 0 at 1: chords lie above it.
        between = max(2, math.ceil(math.log(highest / _LOWEST) / _APART))
        knots = np.geomspace(_LOWEST, highest, between)
        logs = (knots - 1) * np.minimum(_answers(winners, knots), winners.by_counts(knots))
        near = order_values <= highest
        chords = np.interp(order_values[near], np.append(1.0, knots), np.append(0.0, logs))
        worst[near] = np.minimum(worst[near], chords / (order_values[near] - 1))
    worst.flags.writeable = False
    return worst


def any_winner(sigma: float, orders: Floats) -> Floats:
    """Bounds the divergence of a winner that is always released, for any counts and classes, (o,).

    The largest moment of "a, b or another", over what the best other class reaches and over how far
    b is behind a; exchanging them exchanges the directions.
    """
    return np.asarray(np.maximum(*_whatever_wins(sigma, orders, apart=1)))


def _whatever_wins(sigma: float, orders: Floats, *, apart: int) -> tuple[Floats, Floats]:
    """The same where a is so many votes ahead before it gives one to b: both directions, (o,)."""
    move, most, step = 1 / sigma, float(orders.max()) / sigma, _STEP / 2
    # It begins a little before, so that its first row lies inside of the grid.
    behind = step - apart * move - np.arange(0, 6 + 1.5 * most, step)
    reached = np.arange(-_BELOW - most, _ABOVE, step)
    found = []
    for moments in either_way(behind, reached, move, orders):
        # Between points a curve is higher by an eighth of a second difference: twice that.
        bends = np.abs(np.diff(moments, n=2, axis=0))[:, 1:-1]
        bends = bends + np.abs(np.diff(moments, n=2, axis=1))[1:-1]
        worst = (moments[1:-1, 1:-1] + bends / 4).max(axis=(0, 1), initial=0.0)
        found.append(np.minimum(worst / (orders - 1), orders / sigma**2))
    return found[0], found[1]


def _answers(winners: Winners, orders: Floats) -> Floats:
    """The worst of all numbers of votes that the leading class can have."""
    if winners.threshold is None:
        return any_winner(winners.sigma, orders)
    moves = _moves(winners.teachers, winners.classes, winners.sigma, tuple(orders))
    return _checked(winners, *moves, orders)


def moves_by_leader(winners: Winners, order: float) -> tuple[Floats, Floats, Floats]:
    """What an answer tells that is given, over all moves of a vote, at one order up to FAR sigma.

    Returns:
      (n,) votes of the leading class, (n,) the same in the other world, and (n,) divergences.
    """
    found = _moves(winners.teachers, winners.classes, winners.sigma, (order,))
    return found[0], found[1], found[2][:, 0]


@lru_cache(maxsize=64)
def _moves(
    teachers: int, classes: int, sigma: float, orders: tuple[float, ...]
) -> tuple[Floats, Floats, Floats]:
    """What a winner tells, by the votes of the leading class in both worlds; whatever checks it.

    Returns:
      (n,) votes of the leading class, (n,) the same in the other world, and (n, o) divergence.
    """
    order_values, half = np.array(orders), teachers // 2
    whatever = any_winner(sigma, order_values)
    votes = np.arange(teachers + 1, dtype=np.float64)
    # The leading count stays as it is, it falls by one, and it rises by one.
    stays, falls, rises = (np.zeros((votes.size, order_values.size)) for _ in range(3))
    # No class has more than half. The leading count stays as it is, or the only leader, two votes
    # ahead of b at least, gives one away or gets it back.
    few = slice(-(-teachers // classes), half + 1)
    stays[few] = whatever
    falls[few], rises[few] = _whatever_wins(sigma, order_values, apart=2)
    for leaders, gap, gives, gets in _leader_moves(teachers, classes, sigma, order_values):
        if gap == 1:  # both exchange their counts
            stays[leaders] = np.maximum(stays[leaders], np.maximum(gives, gets))
        else:
            falls[leaders] = np.maximum(falls[leaders], gives)
            rises[leaders] = np.maximum(rises[leaders], gets)
    most = slice(half + 1, None)
    stays[most] = np.maximum(stays[most], _losers_move(teachers, sigma, votes[most], order_values))
    here = np.concatenate([votes, votes, votes - 1])
    there = np.concatenate([votes, votes - 1, votes])
    return here, there, np.minimum(np.concatenate([stays, falls, rises]), whatever)


def _checked(
    winners: Winners, here: Floats, there: Floats, answered: Floats, orders: Floats
) -> Floats:
    """Largest divergence of a checked answer over pairs of leading counts, (o,).

    Args:
      winners: the check.
      here: (n,) votes of the leading class.
      there: (n,) the same in the other world.
      answered: (n, o) or (1, o) divergence of the answer here from that there.
      orders: (o,).
    """
    mine, other = winners.log_checks(here)[:, :, None], winners.log_checks(there)[:, :, None]
    moments = orders * mine + (1 - orders) * other
    both = np.logaddexp(moments[:, 0] + (orders - 1) * answered, moments[:, 1])
    return np.asarray(both.max(axis=0, initial=0.0) / (orders - 1))


def _leader_moves(
    teachers: int, classes: int, sigma: float, orders: Floats
) -> Iterator[tuple[NDArray[np.int64], int, Floats, Floats]]:
    """Where more than half vote for a class that gives a vote to another, or gets one from it.

    Yields:
      (n,) votes of that class while it has the vote, how far the other one is behind, and the
      divergences of the answer when it gives the vote away and when it gets it, (n, o) each.
    """
    move, most = 1 / sigma, float(orders.max()) / sigma
    reached = np.arange(-_BELOW - most, _ABOVE, _STEP)
    # Who is further behind wins with less than exp(-100): any such distance is alike.
    furthest = min(teachers, math.ceil((15 + most) * sigma))
    gaps = np.arange(1, furthest + 1)
    ways = [np.exp(logs) for logs in either_way(-gaps / sigma, reached, move, orders)]
    tables = [(moments[:, 0], rises_within(moments)) for moments in ways]
    for gap in range(1, teachers + 1):
        leaders = np.arange(max(teachers // 2 + 1, gap), (teachers + gap) // 2 + 1)
        if not leaders.size:
            continue
        row, left = min(gap, furthest) - 1, teachers - 2 * leaders + gap
        # All that is left in one class, the others empty: the most that any can reach.
        below = scipy.special.log_ndtr(reached + (leaders - left)[:, None] / sigma)
        empty = scipy.special.log_ndtr(reached + leaders[:, None] / sigma)
        above = -np.expm1(below + (classes - 3) * empty)
        gives, gets = (
            np.log(start[row] + above[:, :-1] @ rises[row]) / (orders - 1)
            for start, rises in tables
        )
        yield leaders, gap, gives, gets


def rises_within(moments: Floats) -> Floats:
    """By how much moments rise within each cell of a grid, (rows, cells, o).

    Where a slope turns, an eighth of the second difference may be missing: twice that is added.
    """
    steps = np.diff(moments, axis=1)
    bends = np.abs(np.diff(steps, axis=1))
    turns = np.zeros_like(steps)
    turned = np.where(steps[:, 1:] * steps[:, :-1] < 0, bends / 4, 0.0)
    turns[:, 1:], turns[:, :-1] = turned, np.maximum(turns[:, :-1], turned)
    return np.maximum(steps, 0.0) + turns


def _losers_move(teachers: int, sigma: float, leaders: Floats, orders: Floats) -> Floats:
    """Where more than half vote for one class and two others exchange a vote, (n, o).

    What both reach above the leader, exactly, tells more than the winner; the more so the lower
    the leader and the higher they are. Of the remaining votes one has all at most, the other half.
    """
    move, most = 1 / sigma, float(orders.max()) / sigma
    steps = np.arange(-_REACH - 2 * most, _REACH, 2 * _STEP)
    weights = np.exp(-(steps**2) / 2 - _HALF_LOG_TWO_PI) * 2 * _STEP
    others = teachers - leaders
    high, low = others, (others + 1) / 2
    worst = np.zeros((leaders.size, orders.size))
    for gains, gives in ((high, low), (low, high)):
        first, second = (
            steps[None, :, None] + (leaders - votes)[:, None, None] * move
            for votes in (gives, gains)
        )
        told = censored(first, orders, move, True) + censored(second, orders, move, False)
        moments = np.einsum("lyo,y->lo", np.exp(told), weights)
        worst = np.maximum(worst, np.log(np.maximum(moments, 1.0)) / (orders - 1))
    return np.where(others[:, None] > 0, worst, 0.0)


def censored(above: Floats, orders: Floats, move: float, up: bool) -> Floats:
    """Log-moment of a noisy count that is told where it exceeds another, and hidden where not.

    Args:
      above: how far that other is above the larger of both centres.
      orders: (o,).
      move: between both centres, which is 1 / sigma.
      up: whether the first centre is the larger one.
    """
    log_cdf = scipy.special.log_ndtr
    first, second = (0.0, move) if up else (move, 0.0)
    shifted = (orders - 1) * move if up else -orders * move
    told = orders * (orders - 1) * move**2 / 2 + log_cdf(shifted - above)
    hidden = orders * log_cdf(above + first) + (1 - orders) * log_cdf(above + second)
    return np.asarray(np.logaddexp(told, hidden))


def either_way(
    behind: Floats, reached: Floats, move: float, orders: Floats
) -> tuple[Floats, Floats]:
    """Log-moments of "a, b or another" when a vote moves from a to b, and when one moves back.

    Args:
      behind: (w,) how far b's count is above a's, below 0.
      reached: (z,) what the best other class reaches, above a's count; an even grid.
      move: one vote.
      orders: (o,).

    Returns:
      Both directions, each (w, z, o).
    """
    before, after = _three(behind, reached), _three(behind + 2 * move, reached + move)

    def moments(first: tuple[Floats, ...], second: tuple[Floats, ...]) -> Floats:
        a, b, another = (
            orders * p[:, :, None] + (1 - orders) * q[:, :, None]
            for p, q in zip(first, second, strict=True)
        )
        return np.asarray(np.logaddexp(np.logaddexp(a, b), another))

    return moments(before, after), moments(after, before)


def _three(behind: Floats, reached: Floats) -> tuple[Floats, Floats, Floats]:
    """Log-chances that a, at 0, is in front, that b is, and that another is, each (w, z)."""
    step = float(reached[1] - reached[0])
    edges = np.arange(reached[0], _REACH + max(0.0, float(behind.max())), step)
    x = (edges[:, None] + step * (_NODES + 1) / 2)[None]
    b = behind[:, None, None]
    log_cdf, base = scipy.special.log_ndtr, np.log(_WEIGHTS * step / 2) - _HALF_LOG_TWO_PI
    in_front = [
        scipy.special.logsumexp(base - (x - mine) ** 2 / 2 + log_cdf(x - other), axis=2)
        for mine, other in ((0.0, b), (b, 0.0))
    ]
    a_wins, b_wins = (
        np.logaddexp.accumulate(cells[:, ::-1], axis=1)[:, ::-1][:, : reached.size]
        for cells in in_front
    )
    return a_wins, b_wins, log_cdf(reached) + log_cdf(reached - behind[:, None])
