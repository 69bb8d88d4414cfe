"""What MLflow is told of a book: one run for the book, one child run for each of its cells."""

from __future__ import annotations

from pathlib import Path

from dpal.book.book_file import Book
from dpal.book.cells import BookCell
from dpal.book.results import CellResult
from dpal.config.runtime import RuntimeConfig
from dpal.ledger.stamped_day import today_in_utc
from tasks.boundary import task
from tasks.tracking.experiment import SOURCE, find_run, prefect_tag, tell_mlflow
from tasks.tracking.mlflow_notes import NOTE
from tasks.tracking.mlflow_run import FINISHED, TrackedRun, finished_run, open_tracked_run

_BOOK, _CELL = "dpal.book", "dpal.cell"


@task()
def reach_tracking_of_book(runtime: RuntimeConfig) -> None:
    """Finds out that MLflow does not answer before anything is run."""
    runtime.artifacts.mkdir(parents=True, exist_ok=True)
    tell_mlflow(runtime, lambda: None, patient=False)


@task()
def track_cell(runtime: RuntimeConfig, book: str, cell: BookCell, result: CellResult) -> None:
    """Records a finished cell as a child run of its book; one that is there stays."""
    tell_mlflow(runtime, lambda: _track_cell(book, cell, result))


@task()
def track_book(runtime: RuntimeConfig, book: Book, folder: Path, dvc_hash: str) -> None:
    """Adds the page to the book's run, and ends it."""
    tell_mlflow(runtime, lambda: _track_book(book, folder, dvc_hash))


def _track_cell(book: str, cell: BookCell, result: CellResult) -> None:
    tags = {_BOOK: book, _CELL: cell.digest}
    existing = find_run(tags)
    if existing is not None and existing.info.status == FINISHED:
        return
    tags |= {
        "mlflow.parentRunId": _book_run(book).run_id,
        "dpal.phase": "cell",
        "dpal.method": cell.method,
        "dpal.plan": result.plan,
        "dpal.certificate": result.certificate,
        "dpal.run": result.run,
        "dpal.state": f"refused: {result.refused}" if result.refused else "finished",
        **prefect_tag(),
        **SOURCE,
    }
    name = f"{book}/{cell.table}/{cell.row}/{cell.column}/{cell.seed}"
    with finished_run(existing, name, tags, day=today_in_utc().isoformat()) as told:
        told.log_params(
            {"table": cell.table, "row": cell.row, "column": cell.column, "set": cell.set_name,
             "method": cell.method, "seed": cell.seed}
        )  # fmt: skip
        told.log_metrics({f"test_{key}": value for key, value in result.figures.items()})
        for point in result.curve:
            told.log_metrics(
                {f"curve_{key}": value for key, value in point.figures.items()}, step=point.labels
            )


def _track_book(book: Book, folder: Path, dvc_hash: str) -> None:
    run = _book_run(book.name)
    pages = [path for path in (folder / "book.html", folder / "book.md") if path.is_file()]
    run.log_files(*pages)
    run.set_tags({"dvc.md5": dvc_hash, "dpal.state": "finished", NOTE: book.about, **prefect_tag()})
    run.end(FINISHED)


def _book_run(book: str) -> TrackedRun:
    """The run of the book, made where there is none."""
    tags = {_BOOK: book, "dpal.phase": "book"}
    existing = find_run(tags)
    about = {**tags, "dpal.state": "running", **prefect_tag(), **SOURCE}
    return open_tracked_run(existing, book, about, day=today_in_utc().isoformat())
