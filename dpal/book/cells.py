"""Cells of a book: one run for each combination of its grid, known by what decides its result."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from dpal.book.axes import FIGURE, LABELS, METHOD, values_of
from dpal.book.book_file import SET, Book, BookSet, BookTable
from dpal.book.data_set_splits import POLLUTED
from dpal.book.methods import BETWEEN_SITES, NOT_PRIVATE, ONE_PHASE, PRIVATE, SELECTING
from dpal.canonical import digest, file_digest
from dpal.config.campaign import override
from dpal.errors import ConfigError, DataError
from dpal.runs.kinds import kind_in
from dpal.runs.sweeps import deciding

FORMAT = 1  # raised where the same settings would no longer give a comparable result
# What stands in settings where the file of a part will: part:validation, say.
PART = "part:"
_SELECTABLE = ("table", "row", "column", "set", METHOD, "seed")
_PARTED = re.compile(rf",(?=(?:{'|'.join(_SELECTABLE)})=)")  # names may have commas of their own


@dataclass(frozen=True, kw_only=True)
class BookCell:
    """One run that a book wants.

    Attributes:
      digest: of everything that decides its result; two cells with the same are one run.
      table, row, column: where it stands; the first place, where it stands in several.
      set_name: its data set.
      method: how it is made.
      seed: which public records are the pool, and initial weights.
      figure: what is shown of it; None where its table says that.
      settings: of its run, with the parts of the set in place of files.
      files: source files of its set: train, test, and what pollutes it, if anything.
    """

    digest: str
    table: str
    row: str
    column: str
    set_name: str
    method: str
    seed: int
    figure: str | None = None
    settings: Mapping[str, Any] = field(compare=False, repr=False)
    files: tuple[Path, ...] = field(compare=False, repr=False)

    def in_words(self) -> str:
        """Where it stands."""
        return f"{self.table}: {self.row}, {self.column}, seed {self.seed}"


def cells_of_book(book: Book, data: Path, *, seeds: int | None = None) -> list[BookCell]:
    """All cells, table by table; nothing of them is run.

    Args:
      book: the book.
      data: folder of the files that its sets name.
      seeds: how many seeds, in place of those that it names: 0, 1 and so on.

    Raises:
      ConfigError: settings are unknown or contradict each other.
      DataError: a file is missing.
    """
    listed = []
    for table in book.tables:
        wanted = table.seeds or book.seeds
        for seed in wanted if seeds is None else range(seeds):
            listed += [_cell(book, table, seed, chosen, data) for chosen in _combinations(table)]
    return listed


def selected_cells(cells: Sequence[BookCell], only: Sequence[str]) -> list[BookCell]:
    """Cells that somebody asks for.

    Args:
      cells: all of them.
      only: such as "table-1" or "table=table-1,column=adult,seed=0"; a cell is wanted where one of
        them fits it. None at all wants every cell.

    Raises:
      ConfigError: one names no key that is known, or fits no cell.
    """
    if not only:
        return list(cells)
    wanted: dict[int, BookCell] = {}
    for text in only:
        asked = dict(_asked(part) for part in _PARTED.split(text))
        fitting = [place for place, cell in enumerate(cells)
                   if all(_said(cell)[key] == value for key, value in asked.items())]  # fmt: skip
        if not fitting:
            near = sorted({_said(cell)[key] for cell in cells for key in asked})
            raise ConfigError(
                f"--only {text} fits no cell of the book; what it names may be: "
                f"{', '.join(near[:12])}{', ...' if len(near) > 12 else ''}"
            )
        wanted |= {place: cells[place] for place in fitting}
    return [wanted[place] for place in sorted(wanted)]


def _said(cell: BookCell) -> dict[str, str]:
    """What `--only` may ask of a cell."""
    return {
        "table": cell.table, "row": cell.row, "column": cell.column, "set": cell.set_name,
        METHOD: cell.method, "seed": str(cell.seed),
    }  # fmt: skip


def _asked(part: str) -> tuple[str, str]:
    key, sign, value = (piece.strip() for piece in part.partition("="))
    if not sign:
        return "table", key
    if key not in _SELECTABLE:
        raise ConfigError(f"--only {part} names {key!r}; use one of {', '.join(_SELECTABLE)}")
    return key, value


def _combinations(table: BookTable) -> Iterator[dict[str, tuple[str, Mapping[str, Any]]]]:
    """Every choice of a value on every axis: its name and its settings."""
    listed = [list(values_of(axis, values)) for axis, values in table.grid.items()]
    for chosen in product(*listed):
        yield dict(zip(table.grid, chosen, strict=True))


def _cell(
    book: Book,
    table: BookTable,
    seed: int,
    chosen: Mapping[str, tuple[str, Mapping[str, Any]]],
    data: Path,
) -> BookCell:
    set_name = chosen[SET][0]
    about = book.sets[set_name]
    given: dict[str, Any] = {}
    # What is said of one table or value stands above what is said of all.
    others = (chosen[axis][1] for axis in chosen if axis != SET)
    for settings in (book.settings, about.settings, table.settings, *others):
        given |= settings
    method, labels = given.pop(METHOD, PRIVATE), given.pop(LABELS, None)
    figure = given.pop(FIGURE, table.figure)
    row = ", ".join(chosen[axis][0] for axis in table.grid if axis != table.columns)
    column = chosen[table.columns][0]
    try:
        values = _settings(book, given, method, labels, seed)
        if about.pollution is not None:
            values = values | {"public": {**values.get("public", {}), **POLLUTED}}
        about_run = _deciding(values, method)
    except ConfigError as error:
        raise ConfigError(f"table {table.name}, row {row}, column {column}: {error}") from error
    files = _files(about, data)
    made_of = {
        "format": FORMAT,
        METHOD: method,
        "seed": seed,
        "settings": about_run,
        "set": about.division,
        "files": [_digest_of(file) for file in files],
    }
    return BookCell(
        digest=digest(made_of),
        table=table.name,
        row=row,
        column=column,
        set_name=set_name,
        method=method,
        seed=seed,
        figure=figure,
        settings=values,
        files=files,
    )


def _deciding(values: Mapping[str, Any], method: str) -> Any:
    """Whatever of its settings decides what comes of a cell."""
    return values if method in BETWEEN_SITES else deciding({**values, "name": "cell"})


def _settings(
    book: Book, given: Mapping[str, Any], method: str, labels: int | None, seed: int
) -> dict[str, Any]:
    """Settings of a run, nested as a person writes them."""
    if method in BETWEEN_SITES:
        from dpal.book.sites_cells import sites_settings  # which knows what a cell is

        return sites_settings(given)
    values: dict[str, Any] = {}
    for key, value in given.items():
        override(values, key, copy.deepcopy(value))
    kind = kind_in(values)
    about = kind.in_books
    if about is None:
        raise ConfigError(f"a book has no cells of kind {kind.name}; use a kind that has a model")
    values["validation"] = {"public": True, "why": book.why}
    override(values, "data.pool", f"{PART}pool")
    if "data.validation" not in given:
        override(values, "data.validation", f"{PART}validation")
    for key in about.seeds:
        override(values, key, seed)
    if about.public_pool:
        override(values, "public.pool", f"{PART}public")
    if about.buys_by_schedule:
        _schedule(values, method, labels)
        return values
    if method != PRIVATE:
        raise ConfigError(f"method {method} is of campaigns; leave it out for {kind.name}")
    if labels is not None:
        override(values, about.labels, labels)
    return values


def _schedule(values: dict[str, Any], method: str, labels: int | None) -> None:
    """Brings the schedule of a campaign to a number of labels, and to one phase."""
    schedule = values.setdefault("schedule", {})
    initial, queries = schedule.get("initial", 0), list(schedule.get("queries", []))
    if not initial:
        raise ConfigError("a book says how many labels are bought; set schedule.initial")
    if labels is not None:
        share = labels / (initial + sum(queries))
        queries = [max(1, round(share * query)) for query in queries]
        initial = labels - sum(queries)
    if method in (ONE_PHASE, NOT_PRIVATE):
        initial, queries = initial + sum(queries), []
        values["acquisition"] = "random"
    if method in SELECTING and not queries:
        raise ConfigError(f"method {method} selects, and the schedule has no query; give it some")
    schedule["initial"], schedule["queries"] = initial, queries


def _files(about: BookSet, data: Path) -> tuple[Path, ...]:
    names = [about.train, about.test or about.train]
    names += [] if about.pollution is None else [about.pollution.file]
    files = tuple(data / name for name in names)
    for file in files:
        if not file.is_file():
            raise DataError(
                f"{file} does not exist, and the book needs it; say with --data in which folder "
                "its data sets are"
            )
    return files


@lru_cache(maxsize=256)
def _digest_of(file: Path) -> str:
    return file_digest(file)
