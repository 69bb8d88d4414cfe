"""A table before its columns have a meaning, and its rows as they are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

# Dots before it are of the name: visits.2025.csv and visits.2026.csv have other rows.
_ENDING = re.compile(r"\.(csv|tsv|data|txt|parquet|jsonl|ndjson|jsonlines)(\.gz)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Rows:
    """Rows of a table.

    Attributes:
      cells: their columns.
      odd: how many rows were left out so far, as they could not be read, and not told of yet.
      breaks: how many line breaks those rows have.
      numbers: which rows of the table they are, from 1 on; None: those that come next.
      split: part of the source that their file is, where its name says so.
    """

    cells: pa.RecordBatch
    odd: int = 0
    breaks: int = 0
    numbers: Sequence[int] | None = None
    split: str | None = None


@dataclass(frozen=True, kw_only=True)
class SourceTable:
    """A table before its columns have a meaning.

    Attributes:
      place: its file, or the folder of its files.
      columns: their names, in order.
      rows: reads it once.
      schema: types of its columns; None: all are texts.
      classes: names of classes that its metadata declares.
      has_parts: whether its files say which part of the source they are.
    """

    place: Path
    columns: tuple[str, ...]
    rows: Callable[[], Iterator[Rows]]
    schema: pa.Schema | None = None
    classes: tuple[str, ...] = ()
    has_parts: bool = False


def made_name(place: Path, number: int) -> str:
    """The name of a row that has none.

    >>> made_name(Path("visits.2026.csv.gz"), 7)
    'visits.2026-7'
    """
    return f"{_ENDING.sub('', place.name)}-{number}"
