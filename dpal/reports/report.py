"""A report as a value: what is told, before anything says how it looks.

Renderers are in `dpal.reports.render`. Everything in a report is public. A plain string is a
paragraph; in any text, `so` is a word of a machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dpal.reports.charts import Chart

PROMISE_AT = 92.0  # where on a bar the promise is, of 100: there is room to pass it
BROKEN, SPENT, CONTROL = "broken", "spent", "control"  # styles of bars, beside those of `charts`
# Beside numbers.
_UNNUMBERED = (
    "", "-", "none", "not private", "in the total", "all of it", "not run", "not possible",
)  # fmt: skip
_SHORT = 24  # characters; cells so short are not broken into lines

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Bar:
    """Pieces one after the other; what passes 100 is cut off.

    Attributes:
      segments: width in parts of 100, style, and whether it is only held, of each piece.
      mark: what the bar must not pass, of 100; None for nothing.
    """

    segments: tuple[tuple[float, str, bool], ...]
    mark: float | None = None

    def pieces(self) -> list[tuple[float, float, str, bool]]:
        """Start, width, style, and whether it is held, of each piece."""
        placed, start = [], 0.0
        for wanted, style, held in self.segments:
            width = max(0.0, min(100.0 - start, wanted))
            placed.append((start, width, style, held))
            start += width
        return placed


@dataclass(frozen=True)
class Table:
    """A titled table of already formatted cells.

    Attributes:
      title: above it.
      columns: their names.
      rows: their cells.
      bars: a bar for each row, shown before its numbers where bars can be shown.
      bars_title: what their column is called.
      total: whether the last row is the sum of it all.
      badge: the column of states that stand out.
      links: for each row and column the file that a cell leads to, relative to the page; empty for
        none.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: tuple[Bar, ...] = ()
    bars_title: str = ""
    total: bool = False
    badge: str = ""
    links: tuple[tuple[str, ...], ...] = ()

    def link(self, row: int, column: int) -> str:
        """The file that a cell leads to; empty where it leads nowhere."""
        return self.links[row][column] if self.links else ""

    def is_number(self, column: int) -> bool:
        """Whether a column holds numbers: short cells that begin with a digit or say "none"."""
        cells = [row[column] for row in self.rows]
        return (
            column > 0
            and self.is_short(column)
            and all(cell in _UNNUMBERED or cell.lstrip("-+")[:1].isdecimal() for cell in cells)
        )

    def is_short(self, column: int) -> bool:
        """Whether no cell of a column needs more than a line."""
        return all(len(row[column]) <= _SHORT for row in self.rows)

    @property
    def bars_before(self) -> int:
        """Number of the column before which bars stand: the first of numbers."""
        numbers = (column for column in range(len(self.columns)) if self.is_number(column))
        return next(numbers, len(self.columns))


@dataclass(frozen=True)
class Aside:
    """A quiet paragraph: how to read what stands beside it."""

    text: str


@dataclass(frozen=True)
class Points:
    """Sentences of a list."""

    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Words, and what each of them means or is."""

    rows: Rows


@dataclass(frozen=True)
class Commands:
    """Commands, and what each of them does; empty where the next one says it."""

    rows: Rows


@dataclass(frozen=True)
class Legend:
    """What bars stand for: name, style, and whether it is only held."""

    rows: tuple[tuple[str, str, bool], ...]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An image: the name of its file without ending, what it shows in words, its bytes."""

    name: str
    alt: str
    png: bytes


Block = str | Aside | Points | Facts | Commands | Legend | Table | Chart | Picture


@dataclass(frozen=True)
class ReportSection:
    """Blocks under a heading, in reading order."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Verdict:
    """What a reader should know first.

    Attributes:
      title: in one sentence.
      tone: "kept", "mind" where something needs to be looked into, or "broken".
      points: whether something is as it should be, and what was found.
    """

    title: str
    tone: str
    points: tuple[tuple[bool, str], ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is told of a run, whatever its kind.

    Attributes:
      title: kind and name of the run.
      about: what this page is, and of when.
      promise: in one sentence.
      verdict: whether it is kept.
      cards: a number, what it is, and what belongs to it.
      sections: in reading order.
      digests: what names the ledger, the plan and the certificate.
    """

    title: str
    about: str
    promise: str
    verdict: Verdict
    sections: tuple[ReportSection, ...]
    digests: Rows
    cards: tuple[tuple[str, str, str], ...] = ()

    def blocks(self, kind: type[Any]) -> list[Any]:
        """All blocks of one kind, in reading order."""
        return [block for part in self.sections for block in part.blocks if isinstance(block, kind)]


def section(title: str, *blocks: Block | None, note: str = "") -> ReportSection:
    """Blocks under a heading; those that are None are left out.

    Args:
      title: the heading.
      blocks: in reading order.
      note: how to read them, before them.
    """
    quiet = Aside(note) if note else None
    return ReportSection(title, tuple(block for block in (quiet, *blocks) if block is not None))


def table(title: str, rows: Iterable[Mapping[str, object]], *columns: str, **more: Any) -> Table:
    """A table of rows, each with its cells by column.

    Args:
      title: above it.
      rows: with the same columns; numbers are already formatted.
      columns: their names, where there may be no row.
      more: as `Table` has it.
    """
    cells = [{column: str(cell) for column, cell in row.items()} for row in rows]
    names = tuple(cells[0]) if cells else columns
    return Table(title, names, tuple(tuple(row.values()) for row in cells), **more)


def spent_bar(epsilon: float, target: float) -> Bar:
    """A bar of what was spent, with the promise as its mark. NaN is no promise kept."""
    width, kept = PROMISE_AT * epsilon / target, epsilon <= target
    return Bar(((width if width < 100.0 else 100.0, SPENT if kept else BROKEN, False),), PROMISE_AT)


def pieces(text: str) -> list[tuple[bool, str]]:
    """Cuts a text at its backticks; what stands between two of them is a word of a machine.

    >>> pieces("run `this` now"), pieces("a ` alone")
    ([(False, 'run '), (True, 'this'), (False, ' now')], [(False, 'a ` alone')])
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return [(False, text)]
    return [(index % 2 == 1, part) for index, part in enumerate(parts)]


def swept_value(value: object) -> Any:
    """A value of a setting as something that tells rows apart: of a list or section its text.

    >>> swept_value([40, 40]), swept_value(8)
    ('[40, 40]', 8)
    """
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def capital(text: str) -> str:
    """A text as it begins a sentence."""
    return f"{text[0].upper()}{text[1:]}"


def sentences(texts: Iterable[str]) -> Points:
    """Statements as a list: each begins with a capital letter and ends with a full stop."""
    return Points(tuple(f"{capital(text).rstrip('.')}." for text in texts))
