"""The highest entries of a stream that is far longer than what is kept of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]

_LEAST_BUFFER = 1 << 16  # entries; sorting fewer at a time costs more than it saves memory


class HighestOfStream:
    """Keeps the `count` highest entries; an entry is a row of columns.

    The first column decides, then the second, and so on: where the first ones can be equal, a
    later one has to break ties. Entries below the lowest of `count` known ones are dropped when
    they come, all others wait until there are as many as are kept, and are sorted with them: a
    stream of N entries in random order takes O(N + count log(N / count) log(count)).

    Memory: twice `count` entries.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: tuple[Column, ...] = ()
        self._waiting: list[tuple[Column, ...]] = []
        self._buffered = 0
        self._is_full = False

    def offer(self, *columns: Column) -> None:
        """Takes a batch, columns of shape (n,), with as many columns each time."""
        if self._is_full:
            possible = self._above_lowest(columns)
            columns = tuple(column[possible] for column in columns)
        self._waiting.append(columns)
        self._buffered += columns[0].size
        if self._buffered > max(self._count, _LEAST_BUFFER):
            self._sort()

    def columns(self) -> tuple[Column, ...]:
        """The highest entries so far, ascending: at most `count`; () if nothing was offered."""
        self._sort()
        return self._kept

    def _sort(self) -> None:
        if not self._waiting:
            return
        parts = [self._kept, *self._waiting] if self._kept else self._waiting
        columns = [np.concatenate(same) for same in zip(*parts, strict=True)]
        order = np.lexsort(columns[::-1])
        highest = order[max(0, order.size - self._count) :]
        self._kept = tuple(column[highest] for column in columns)
        self._waiting, self._buffered = [], 0
        self._is_full = 0 < self._count == highest.size

    def _above_lowest(self, columns: tuple[Column, ...]) -> NDArray[np.bool_]:
        above = np.zeros(columns[0].size, dtype=bool)
        equal = np.ones(columns[0].size, dtype=bool)
        for column, kept in zip(columns, self._kept, strict=True):
            above |= equal & (column > kept[0])
            equal &= column == kept[0]
        return above
