"""What a winner tells about one ballot where the votes are known only by how far one class leads.

Of n votes the leading class has g more than the next one. Whatever else the histogram is, the
divergence of the released winner from that of any neighbour is at most a number R(g), which never
rises with g. One ballot moves the two largest counts by one each at most, and so g by two: R is a
table over 0..n whose every step is known, and a sum of it over queries can be told with noise.

Three kinds of moves, each of them proven in docs/voting.md ("By the lead"):

- the leading class gives a vote to a class h >= g behind it, or gets one from it. All others are g
  behind at least; what the best of them reaches is most likely to be high where all of them are
  just that, and the moment of "a, b or another" is a mean over it.
- Two others exchange a vote. They are told wherever they come before the leader, which tells more,
  and the more the nearer they are.
- Where several lead, the leader is the one that gives or gets the vote.

Only the divergence of the votes that were cast from their neighbours is bounded, not the other
direction: that is what a told bound needs.

Source: own derivation, docs/voting.md.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.votes.worst_winner import (
    FAR,
    any_winner,
    censored,
    either_way,
    rises_within,
)

Floats = NDArray[np.float64]

# Of grids and integrals, in standard deviations of the noise.
_STEP = 0.2
_BELOW, _ABOVE, _REACH = 8.0, 5.0, 12.0
_FURTHEST = 15.0  # behind that far, a class wins with less than exp(-100)
_ROUNDED = 1e-12  # of a logarithm of a moment, generously


@lru_cache(maxsize=256)
def lead_costs(*, teachers: int, classes: int, sigma: float, order: float) -> Floats:
    """Bounds the Rényi divergence of one winner from its neighbours', by the lead.

    Args:
      teachers: n that vote.
      classes: that a ballot can name, also those that none does.
      sigma: standard deviation of the noise on every count, in votes.
      order: of the divergence, above 1.

    Returns:
      (n + 1,) nats, by votes between the largest count and the next one; never rising, and never
      above what a winner tells whatever the votes are.
    """
    check.at_least(2, classes=classes, teachers=teachers)
    check.inside(1, math.inf, order=order)
    check.positive(sigma=sigma)
    orders, move = np.array([order]), 1 / sigma
    whatever = order / sigma**2
    costs = np.full(teachers + 1, whatever)
    if order <= FAR * sigma:
        if classes > 2:
            whatever = min(whatever, float(any_winner(sigma, orders)[0]))
        furthest = min(teachers, math.ceil((_FURTHEST + order * move) * sigma))
        leads = np.arange(furthest + 1)
        told = _leader_moves(leads, classes, sigma, order)
        if classes > 2:
            told = np.maximum(told, _others_move(leads, sigma, orders))
        costs[: furthest + 1] = np.minimum(told, whatever)
        costs[furthest + 1 :] = costs[furthest]
    costs = np.minimum.accumulate(costs)
    costs.flags.writeable = False
    return costs


def _leader_moves(leads: NDArray[np.int64], classes: int, sigma: float, order: float) -> Floats:
    """Where the leading class gives a vote to a class that far behind it or further, or gets one.

    The world in which it has the vote is the one that distances are counted in: its rows are
    classes from 0 to that many votes behind.
    """
    move, most, orders = 1 / sigma, order / sigma, np.array([order])
    reached = np.arange(-_BELOW - most, _ABOVE, _STEP)
    # Whoever gets a vote was two votes further ahead of the giver afterwards, and one of others.
    gaps = np.arange(len(leads) + 2)
    worst = np.zeros(leads.size)
    ways = either_way(-gaps / sigma, reached, move, orders)
    for logs, wider, ahead in zip(ways, (0, 2), (0, 1), strict=True):
        moments = np.exp(logs[:, :, 0])
        rises = rises_within(moments[:, :, None])[:, :, 0]
        below = scipy.special.log_ndtr(reached[:-1] + (leads[:, None] + ahead) * move)
        above = -np.expm1((classes - 2) * below)
        means = moments[:, 0] + above @ rises.T  # (leads, gaps)
        # Of all classes that are as far behind or further.
        behind = np.maximum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
        found = behind[leads, leads + wider]
        worst = np.maximum(worst, np.log(found) + _ROUNDED)
    return np.asarray(worst / (order - 1))


def _others_move(leads: NDArray[np.int64], sigma: float, orders: Floats) -> Floats:
    """Where two others exchange a vote: one has lead votes less at least, the other comes nearer.

    Which of them wins, and which of both worlds has the vote, changes nothing but the sign of a
    move: it is told apart by `up`.
    """
    move, most = 1 / sigma, float(orders[0]) / sigma
    steps = np.arange(-_REACH - 2 * most, _REACH, 2 * _STEP)
    weights = np.exp(-(steps**2) / 2 - math.log(2 * math.pi) / 2) * 2 * _STEP
    gives = steps[None, :, None] + leads[:, None, None] * move
    gets = steps[None, :, None] + (leads - 1)[:, None, None] * move
    told = censored(gives, orders, move, True) + censored(gets, orders, move, False)
    moments = np.einsum("lyo,y->lo", np.exp(told), weights)[:, 0]
    return np.asarray((np.log(np.maximum(moments, 1.0)) + _ROUNDED) / (orders[0] - 1))
