"""A book of results: its cells side by side, each a flow run of its own, then the page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from dpal.book.book_run import open_book, require_no_registered_records, while_time_is_left
from dpal.book.results import CELLS, CellResult
from dpal.book.run_cell import CellOrder
from dpal.book.write_book import write_book
from dpal.config.runtime import RuntimeConfig
from dpal.ledger.folder_lock import lock_folder
from dpal.runs.progress_logging import notify
from tasks.book_cells import made_side_by_side, make_cell, version_results
from tasks.boundary import flow
from tasks.tracking.book_runs import reach_tracking_of_book, track_book, track_cell
from tasks.version_with_dvc import require_remote

_CELL = "flows.book.make_book_cell"


@flow(
    name="book-cell",
    retries=0,
    flow_run_name="{order.cell.table}: {order.cell.row}, {order.cell.column}, {order.cell.seed}",
    validate_parameters=False,
)
def make_book_cell(order: CellOrder) -> CellResult:
    """Makes one cell of a book, or goes on with it."""
    return make_cell(order)


@flow(name="book", retries=0, flow_run_name="book {file}", validate_parameters=False)
def make_book(
    file: Path,
    data: Path,
    runtime: RuntimeConfig,
    only: Sequence[str] = (),
    seeds: int | None = None,
    parallel: int = 1,
    seconds: float | None = None,
) -> None:
    """Makes the cells of a book that are not done, and its page. Done again, it goes on.

    Args:
      file: the book.
      data: folder of the files that its sets name.
      runtime: where runs are kept, tracked and versioned.
      only: which cells; none is all.
      seeds: how many seeds, in place of the book's own.
      parallel: cells at a time.
      seconds: after which no further cell is begun; None sets no end.
    """
    require_remote(runtime)
    run = open_book(file, data, runtime.artifacts, only=only, seeds=seeds)
    with lock_folder(run.folder):
        require_no_registered_records(run, runtime)
        reach_tracking_of_book(runtime)
        orders = while_time_is_left(run.orders(), seconds, clock=time.monotonic)
        for order, result in made_side_by_side(_CELL, orders, parallel=parallel):
            track_cell(runtime, run.book.name, order.cell, result)
            notify(f"{order.cell.in_words()}: {result.in_words()}")
        write_book(run)
        if run.results():
            dvc_hash = version_results(runtime, run.folder / CELLS)
            track_book(runtime, run.book, run.folder, dvc_hash)
        notify(f"book {run.book.name}: {run.forecast().in_words(parallel=parallel)}")
