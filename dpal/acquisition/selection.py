"""Picks records from a stream; memory holds one batch and the best so far."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.errors import ParameterError
from dpal.mechanisms.laplace import GRID, laplace_noise
from dpal.randomness import BitSource

Rows = NDArray[np.int64]


def select_at_random(eligible: Iterable[Rows], count: int, *, rng: BitSource) -> Rows:
    """Picks `count` rows uniformly without replacement. Costs nothing: no record is read.

    Args:
      eligible: batches of row numbers.
      count: rows to pick.
      rng: source of random words.

    Returns:
      (count,) row numbers, in no particular order.

    Raises:
      ParameterError: fewer rows are eligible.
    """
    best = _Best(count)
    for rows in eligible:
        best.offer(np.zeros(rows.size, dtype=np.int64), rows, rng=rng)
    return best.rows()


def select_by_noisy_score(
    scored: Iterable[tuple[Rows, NDArray[np.float64]]],
    count: int,
    *,
    width: float,
    epsilon: float,
    rng: BitSource,
) -> Rows:
    """Picks the `count` rows with the highest noisy scores.

    Every score is rounded to a grid over [0, width] and gets discrete Laplace noise of
    scale width / epsilon, whatever the other records are; the ranking only processes
    noisy values. Costs each record `epsilon` (pure), under both adjacencies.

    Args:
      scored: batches of row numbers and their scores in [0, width].
      count: rows to pick.
      width: of the public score range.
      epsilon: loss of this selection.
      rng: source of random words.

    Returns:
      (count,) row numbers, in no particular order.

    Raises:
      ParameterError: fewer rows are offered, or a score lies outside of the range.
    """
    check.positive(width=width, epsilon=epsilon)
    best = _Best(count)
    for rows, scores in scored:
        # The range is the sensitivity: a score outside of it would not be protected.
        if not ((scores >= 0) & (scores <= width)).all():
            raise ParameterError(f"a score lies outside of [0, {width:g}]; nothing was released")
        on_grid = np.rint(scores * (GRID / width)).astype(np.int64)
        noisy = np.minimum(on_grid, GRID) + laplace_noise(rows.size, epsilon, rng=rng)
        best.offer(noisy, rows, rng=rng)
    return best.rows()


class _Best:
    """The `count` highest keys seen, ties broken by fresh random words."""

    def __init__(self, count: int) -> None:
        check.at_least(1, count=count)
        self._count = count
        self._keys = np.empty(0, dtype=np.int64)
        self._ties = np.empty(0, dtype=np.uint64)
        self._rows = np.empty(0, dtype=np.int64)

    def offer(self, keys: NDArray[np.int64], rows: Rows, *, rng: BitSource) -> None:
        keys = np.concatenate([self._keys, keys])
        ties = np.concatenate([self._ties, rng.words(rows.size)])
        rows = np.concatenate([self._rows, rows])
        kept = np.lexsort((ties, keys))[-self._count :]
        self._keys, self._ties, self._rows = keys[kept], ties[kept], rows[kept]

    def rows(self) -> Rows:
        if self._rows.size < self._count:
            raise ParameterError(
                f"{self._count} records are to be selected and {self._rows.size} are unlabeled"
            )
        return self._rows
