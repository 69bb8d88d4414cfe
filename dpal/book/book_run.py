"""A book that is being made: its folder, its cells, and which of them are done."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpal.book.book_file import Book, read_book
from dpal.book.cells import BookCell, cells_of_book, selected_cells
from dpal.book.forecast import Forecast, forecast_time
from dpal.book.results import CELLS, CellResult, find_result, result_file
from dpal.book.run_cell import CellOrder
from dpal.config.runtime import RuntimeConfig
from dpal.data.sources import Role, open_source
from dpal.files.atomic_writes import make_private
from dpal.runs.plan_new_campaign import require_unregistered

BOOKS = "books"  # folder of all books, below artifacts
PAGES = ("book.html", "book.md")
FIGURES = "figures"


@dataclass(frozen=True, kw_only=True)
class BookRun:
    """A book, and the cells of it that somebody wants.

    Attributes:
      book: the book.
      cells: the wanted ones, in order.
      every: all cells of the book.
      folder: of the book.
    """

    book: Book
    cells: tuple[BookCell, ...]
    every: tuple[BookCell, ...]
    folder: Path

    def result(self, cell: BookCell) -> CellResult | None:
        """What came of a cell; None before it is done."""
        return find_result(self.folder, cell.digest)

    def results(self) -> dict[BookCell, CellResult]:
        """All results of the book that are there, by cell."""
        found = {cell: self.result(cell) for cell in self.every}
        return {cell: result for cell, result in found.items() if result is not None}

    def orders(self) -> list[CellOrder]:
        """Wanted cells that are not done, each once; one that no promise covers is done."""
        wanted = {cell.digest: cell for cell in reversed(self.cells)}
        ordered = [cell for cell in self.cells if wanted.get(cell.digest) == cell]
        return [
            CellOrder(cell=cell, about=self.book.sets[cell.set_name], folder=self.folder)
            for cell in ordered
            if self.result(cell) is None
        ]

    def forecast(self) -> Forecast:
        """What is left, and how long it takes."""
        done = {cell: result.seconds for cell, result in self.results().items()
                if not result.refused}  # fmt: skip
        return forecast_time([order.cell for order in self.orders()], done)

    def export(self, target: Path) -> None:
        """Copies results and pages, for whoever may read them; runs stay where they are.

        Args:
          target: a folder, made where there is none.
        """
        make_private(target / CELLS)
        for cell in self.every:
            if self.result(cell) is not None:
                shutil.copy(result_file(self.folder, cell.digest), target / CELLS)
        for name in PAGES:
            shutil.copy(self.folder / name, target / name)
        shutil.copytree(self.folder / FIGURES, target / FIGURES, dirs_exist_ok=True)


def require_no_registered_records(run: BookRun, runtime: RuntimeConfig) -> None:
    """Requires that no record of a book is one of a registered data set, as all of it is published.

    Args:
      run: all of whose cells are asked about, as those that are done are published again.
      runtime: says where the ledger and its data sets are.

    Raises:
      RecordsRegistered: one is, or is a copy of one.
      LedgerError: there are data sets whose ledger is gone.
    """
    for files in dict.fromkeys(cell.files for cell in run.every):
        for place, file in enumerate(files):  # train, test, and what pollutes
            role = Role.VALIDATION if place == 1 else Role.POOL
            require_unregistered(runtime, open_source(file, role, label_column="label"))


def open_book(
    file: Path,
    data: Path,
    artifacts: Path,
    *,
    only: Sequence[str] = (),
    seeds: int | None = None,
) -> BookRun:
    """Reads a book and finds its cells; runs nothing.

    Args:
      file: the book.
      data: folder of the files that its sets name.
      artifacts: folder of all runs, in which the book's is.
      only: which cells are wanted, as `selected_cells` takes it.
      seeds: how many seeds, in place of those that it names.

    Raises:
      ConfigError: the book, its settings or the selection say something impossible.
      DataError: a file of its sets is missing.
    """
    book = read_book(file)
    every = cells_of_book(book, data.resolve(), seeds=seeds)
    return BookRun(
        book=book,
        cells=tuple(selected_cells(every, only)),
        every=tuple(every),
        folder=artifacts / BOOKS / book.name,
    )


def while_time_is_left(
    orders: Sequence[CellOrder], seconds: float | None, *, clock: Callable[[], float]
) -> Iterator[CellOrder]:
    """Yields orders until the time is over; what was begun by then is finished.

    Args:
      orders: in order.
      seconds: that may pass; None sets no end.
      clock: seconds that only grow.
    """
    began = clock()
    for order in orders:
        if seconds is not None and clock() - began >= seconds:
            return
        yield order
