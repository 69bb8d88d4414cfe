"""Who wins a noisy plurality, before and after one vote has moved: many histograms at once.

Every count of m classes gets noise N(0, sigma^2). With x in standard deviations, class j wins with

    P_j = integral of r(x - v_j) E(x),   E(x) = product over i of Phi(x - v_i),   r = phi / Phi,

and a vote that moves from class g to class t turns E into E U_g W_t with the ratios
U(z) = Phi(z + 1/sigma) / Phi(z) and W(z) = Phi(z - 1/sigma) / Phi(z). All of these depend on how
far a class is behind the leader alone, which is a whole number of votes: one table of them serves
all histograms, and all chances of all neighbours are one product of matrices.

The sum in place of the integral. |Phi(x + iy)| is at most exp(y^2/2) Phi(x) (the path of its
integral moved to that height), and |phi(x + iy)| is exp(y^2/2) phi(x). So a sum with spacing h
differs from P_j by at most 2 P_j exp(-2 pi y / h + m y^2 / 2) for every y, that is
2 P_j exp(-2 pi^2 / (m h^2)): by a share of P_j, however small it is. What lies outside of the grid
is a share of P_j below 1e-15, too. Above it, a class wins with at most e m Phi(-reach) of its
chance. Below it, the leader is with at most Phi(-8.5) of its chance, and a class that is further
behind with at most Phi(-8.6), given that it beats the leader; all others only push winners up.

Source: own derivation. The sum: Trefethen & Weideman (2014).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MISSED = 33.0  # the sum is off by a share of 2 exp(-33)
_PROVEN = 1024  # classes; with more, the spacing that was checked against other integrals
_REACH, _BELOW = 8.5, 6.1  # of the grid; 6.1 is above 8.5 / sqrt(2)
_CELLS = 1 << 19  # numbers in memory at a time, per table
_MOST = 128  # histograms at a time
_TINY = 1e-250  # below it chances are computed by logarithms
_HALF_LOG_TWO_PI = math.log(2 * math.pi) / 2

# What chances may be off by, as a difference of logarithms: the sum, and rounding.
OFF, OFF_UNPROVEN = 1e-12, 1e-9


def off_by(classes: int) -> float:
    """How far the logarithm of a chance may be from the truth."""
    return OFF if classes <= _PROVEN else OFF_UNPROVEN


@dataclass(frozen=True, eq=False)
class Histograms:
    """Histograms with as many different counts each.

    Attributes:
      rows: (b,) which of the given ones they are.
      counts: (b, d) different counts, rising.
      many: (b, d) how many classes have each.
    """

    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    many: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, which: slice) -> Histograms:
        """Some of them."""
        return Histograms(self.rows[which], self.counts[which], self.many[which])


@dataclass(frozen=True, eq=False)
class Moves:
    """Every way to move one vote, with the chances of all that can win.

    Attributes:
      mine: (b, c, k) log-chances that a class of a kind wins, before.
      other: (b, c, k) the same, after.
      many: (b, c, k) how many classes are alike, 0 for no outcome; all 0 for no move.
      leaders: (b,) largest count before.
      moved: (b, c) largest count after.
    """

    mine: Floats
    other: Floats
    many: Floats
    leaders: NDArray[np.int64]
    moved: NDArray[np.int64]


def histograms_of(votes: NDArray[np.integer], classes: int) -> Iterator[Histograms]:
    """Histograms sorted by how many different counts they have.

    Args:
      votes: (q, bins), in any order; classes without votes may be left out.
      classes: how many there are in all.
    """
    ordered = np.sort(votes, axis=1)
    starts = ordered > 0
    cast = starts.sum(axis=1)
    starts[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    different, empty = starts.sum(axis=1), classes - cast
    key = 2 * different + (empty > 0)
    bins = votes.shape[1]
    for one in np.unique(key):
        rows = np.flatnonzero(key == one)
        counts = ordered[rows][starts[rows]].reshape(rows.size, -1)
        first = np.nonzero(starts[rows])[1].reshape(rows.size, -1)
        many = np.diff(first, axis=1, append=bins).astype(np.float64)
        if one % 2:
            counts = np.column_stack([np.zeros(rows.size, dtype=np.int64), counts])
            many = np.column_stack([empty[rows].astype(np.float64), many])
        # Those of alike spread together need grids of alike length.
        along = np.argsort(counts[:, -1] - counts[:, 0], kind="stable")
        yield Histograms(rows[along], counts[along], many[along])


def moves_of(
    histograms: Histograms, *, classes: int, sigma: float
) -> Iterator[tuple[slice, Moves]]:
    """All moves of one vote, some histograms at a time.

    Args:
      histograms: of one number of different counts.
      classes: of the vote.
      sigma: standard deviation of the noise on every count, in votes.

    Yields:
      Which of the histograms, and their moves; of very many different counts some at a time.
    """
    kinds = histograms.counts.shape[1]
    for alike, level in _levels(histograms.counts[:, -1] - histograms.counts[:, 0], sigma):
        grid = _grid(level, classes, sigma)
        givers = max(1, min(kinds, 4 * _CELLS // (kinds * max(grid.size, kinds))))
        most = max(1, min(_MOST, 4 * _CELLS // (kinds * (givers + 1) * grid.size)))
        shared = (level + 1) * grid.size <= _CELLS
        for start in range(alike.start, alike.stop, most):
            which = slice(start, min(start + most, alike.stop))
            some = histograms.part(which)
            behind = some.counts[:, -1:] - some.counts
            if shared:
                table = _shared_table(level, classes, sigma)[:, behind]
            else:
                few, back = np.unique(behind, return_inverse=True)
                table = _table(few, grid, sigma)[:, back.reshape(behind.shape)]
            for giver in range(0, kinds, givers):
                part = slice(giver, giver + givers)
                yield which, _moves(some, table, grid, sigma, part)


def _levels(spreads: NDArray[np.int64], sigma: float) -> Iterator[tuple[slice, int]]:
    """Parts of rising spreads that share a grid, and up to which spread: 8 sigma, 16, 32, ..."""
    start, level = 0, max(1.0, 8 * sigma)
    while start < spreads.size:
        stop = int(np.searchsorted(spreads, level, side="right"))
        if stop > start:
            yield slice(start, stop), int(level)
        start, level = stop, 2 * level


@lru_cache(maxsize=8)
def _shared_table(level: int, classes: int, sigma: float) -> Floats:
    return _table(np.arange(level + 1), _grid(level, classes, sigma), sigma)


def _table(behind: NDArray[np.integer], grid: Floats, sigma: float) -> Floats:
    """Logarithms of Phi, and all others of `_logs` themselves, (6, behind, grid)."""
    table = _logs(behind, grid, sigma)
    with np.errstate(over="ignore", under="ignore"):
        np.exp(table[1:], out=table[1:])
    table.flags.writeable = False
    return table


def _grid(spread: int, classes: int, sigma: float) -> Floats:
    """Points of the sum, in standard deviations from the leader's count."""
    far = 2 * math.log(1 + classes)
    spacing = math.sqrt(2 * math.pi**2 / (classes * _MISSED))
    if classes > _PROVEN:
        spacing = 0.08 * min(1.0, 5 / math.sqrt(far))
    low = -max(_REACH, spread / 2 / sigma + _BELOW) - 2 / sigma
    high = math.sqrt(_REACH**2 + far) + 2 / sigma
    return np.arange(low, high + spacing, spacing)


def _logs(behind: NDArray[np.integer], grid: Floats, sigma: float) -> Floats:
    """Logarithms of all that is multiplied, (6, behind, grid).

    Phi; phi / Phi; both ratios U and W; and the densities of a class that has lost a vote, or got
    one, over Phi.
    """
    move, z = 1 / sigma, grid + behind[:, None] / sigma
    below = scipy.special.log_ndtr(z)
    scale = math.log(grid[1] - grid[0]) - _HALF_LOG_TWO_PI
    return np.stack(
        [
            below,
            scale - z**2 / 2 - below,
            scipy.special.log_ndtr(z + move) - below,
            scipy.special.log_ndtr(z - move) - below,
            scale - (z + move) ** 2 / 2 - below,
            scale - (z - move) ** 2 / 2 - below,
        ]
    )


def _moves(
    histograms: Histograms, table: Floats, grid: Floats, sigma: float, givers: slice
) -> Moves:
    """Chances of all moves.

    Args:
      histograms: (b, d).
      table: (6, b, d, grid), logarithms of Phi, and the others of `_logs` themselves.
      grid: points.
      sigma: of the noise.
      givers: which of the counts give a vote, g of them.
    """
    counts, many = histograms.counts, histograms.many
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        chances = _products(many, table, givers)
        logs = tuple(map(np.log, chances))
    same = np.eye(counts.shape[1], dtype=bool)[givers]
    able = (counts[:, givers, None] > 0) & ((many[:, givers, None] > 1) | ~same)
    left = many[:, None, None, :] - same[:, None, :] - np.eye(counts.shape[1])
    real = able[..., None] & (left > 0)
    # Written so that what is no number is far as well.
    far = ~(chances[0] > _TINY).all(axis=1)
    for one, needed in zip(chances[1:], (real, able, able), strict=True):
        far |= (needed & ~(one > _TINY)).reshape(far.size, -1).any(axis=1)
    for row in np.flatnonzero(far):
        behind = counts[row, -1] - counts[row]
        precise = _log_products(many[row], _logs(behind, grid, sigma), givers)
        for mine, better in zip(logs, precise, strict=True):
            mine[row] = better
    return _outcomes(histograms, able, np.where(real, left, 0.0), logs, givers)


def _products(many: Floats, table: Floats, givers: slice) -> tuple[Floats, ...]:
    """Chances before (b, d), and after a move: (b, g, d, d), and (b, g, d) of giver and taker."""
    size, kinds, points = table.shape[1:]
    everyone = np.exp(np.einsum("bd,bdx->bx", many, table[0]))[:, None]
    density, lost = table[1], table[4][:, givers] * everyone
    ups, downs = table[2][:, givers] * everyone, table[3].transpose(0, 2, 1)
    before = (density @ everyone.transpose(0, 2, 1))[:, :, 0]
    giving = ups.shape[1]
    left = np.empty((size, kinds + 1, giving, points))
    np.multiply(density[:, :, None], ups[:, None], out=left[:, :kinds])
    left[:, kinds] = lost
    after = (left.reshape(size, -1, points) @ downs).reshape(size, kinds + 1, giving, kinds)
    got = ups @ table[5].transpose(0, 2, 1)
    return before, after[:, :kinds].transpose(0, 2, 3, 1), after[:, kinds], got


def _log_products(many: Floats, logs: Floats, givers: slice) -> tuple[Floats, ...]:
    """The same of one histogram, by logarithms: where chances are too small for numbers."""
    everyone, total = many @ logs[0], scipy.special.logsumexp
    density, ups = logs[1], logs[2, givers] + everyone
    moved = [total(density + up + logs[3][:, None], axis=2) for up in ups]
    lost = total((logs[4, givers] + everyone)[:, None] + logs[3], axis=2)
    got = total(ups[:, None] + logs[5], axis=2)
    return total(density + everyone, axis=1), np.stack(moved), lost, got


def _outcomes(
    histograms: Histograms,
    able: NDArray[np.bool_],
    left: Floats,
    logs: tuple[Floats, ...],
    givers: slice,
) -> Moves:
    """All that can win: a class of each kind, whoever gave the vote, and whoever got it."""
    counts, top = histograms.counts, histograms.counts[:, -1:]
    kinds = counts.shape[1]
    before, after, lost, got = logs
    mine, other, many = (np.zeros((*able.shape, kinds + 2)) for _ in range(3))
    mine[..., :kinds] = before[:, None, None]
    mine[..., kinds], mine[..., kinds + 1] = before[:, givers, None], before[:, None]
    other[..., :kinds], other[..., kinds], other[..., kinds + 1] = after, lost, got
    many[..., :kinds], many[..., kinds:] = left, able[..., None]
    # The leading count afterwards: one more if a leader gets the vote, one less if the only one
    # gives it to a class that does not come to be level with it.
    gives = np.zeros((1, kinds, 1), dtype=bool)
    gives[:, -1] = True
    alone = (histograms.many[:, -1:] == 1) & (counts + 1 < top)
    moved = top[:, :, None] - (gives[:, givers] & alone[:, None])
    moved[:, :, -1] = top + 1
    used = able.any(axis=0)
    real = many[:, used] > 0
    return Moves(
        np.where(real, mine[:, used], 0.0),
        np.where(real, other[:, used], 0.0),
        many[:, used],
        top[:, 0],
        moved[:, used],
    )
