"""How long the rest of a book takes, by the cells that are done."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpal.book.cells import BookCell


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What is left, and how long it takes.

    Attributes:
      cells: that are not done.
      seconds: that the known ones of them take, all processes together.
      unknown: cells like which none was done: they are not in the seconds.
    """

    cells: int
    seconds: float
    unknown: int

    def in_words(self, *, parallel: int) -> str:
        """Such as "12 cells, about 6 minutes with 2 at a time"."""
        if not self.cells:
            return "nothing is left"
        if self.unknown == self.cells:
            return f"{self.cells:,} cells; how long they take is known once some are done"
        minutes = self.seconds / 60 / max(1, min(parallel, self.cells - self.unknown))
        more = f", and {self.unknown:,} like which none was done" if self.unknown else ""
        at_once = f" with {parallel} at a time" if parallel > 1 else ""
        return f"{self.cells:,} cells, about {_duration(minutes)}{at_once}{more}"


def forecast_time(left: Iterable[BookCell], done: Mapping[BookCell, float]) -> Forecast:
    """Adds up what cells will take, each like those that are most like it.

    Args:
      left: cells to be made.
      done: seconds of finished ones. Nearest are those of the same row and column of a table, then
        those of the same set and method, then those of the same set.
    """
    known: dict[tuple[str, ...], list[float]] = {}
    for cell, seconds in done.items():
        for likeness in _likenesses(cell):
            known.setdefault(likeness, []).append(seconds)
    wanted: Sequence[BookCell] = list(left)
    found = [
        next((statistics.fmean(known[key]) for key in _likenesses(cell) if key in known), None)
        for cell in wanted
    ]
    return Forecast(
        cells=len(wanted),
        seconds=sum(seconds for seconds in found if seconds is not None),
        unknown=sum(seconds is None for seconds in found),
    )


def _likenesses(cell: BookCell) -> list[tuple[str, ...]]:
    return [
        (cell.table, cell.row, cell.column),
        (cell.set_name, cell.method),
        (cell.set_name,),
    ]


def _duration(minutes: float) -> str:
    if minutes < 1:
        return "a minute"
    return f"{minutes:,.0f} minutes" if minutes < 120 else f"{minutes / 60:,.1f} hours"
