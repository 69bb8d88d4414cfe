"""`dpal book`: makes a book of results on public records, or goes on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.read_settings import RuntimeSettings, runtime_from
from flows.cli.terminal import err, print_table, stop_at_once_on_interrupt

EXAMPLE = (
    "Example: dpal book flows/configs/books/dp-active-learning.yaml --data data --parallel 2; "
    "dpal book mine.yaml --only table-1 --dry-run"
)


def book_command(
    file: Annotated[Path, typer.Argument(metavar="BOOK.yaml", help="The book.")],
    data: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of the files that its sets name.")
    ] = Path("data"),
    only: Annotated[
        list[str],
        typer.Option(
            "--only",
            metavar="SELECT",
            help="Cells of a table (table-1), or those that fit "
            "table=,row=,column=,set=,method=,seed=, separated by commas. Repeatable.",
        ),
    ] = [],  # noqa: B006
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds of each cell, in place of the book's own.")
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Cells at a time.")] = 1,
    budget_minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Begin no further cell after so many minutes."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which cells are left, and for how long.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Copy results and pages there.")
    ] = None,
    settings: RuntimeSettings = [],  # noqa: B006
) -> None:
    """Run a grid on PUBLIC records, or go on with it, and set the results beside printed ones.

    Each cell is a run with a ledger and a certificate of its own. Cells that are done are used
    again, also by other tables, as long as nothing that decides them changes. Prints the page last.
    """
    from dpal.book.book_run import open_book
    from dpal.book.write_book import cells_left_table

    runtime = runtime_from(settings)
    run = open_book(file, data, runtime.artifacts, only=only, seeds=seeds)
    book = run.book
    err.print(f"{book.title}: public records ({book.why}); nothing of them is protected")
    err.print(f"left: {run.forecast().in_words(parallel=parallel)}", markup=False)
    if dry_run:
        print_table(cells_left_table(run))
        return
    from flows.cli.run_book import make_book_here

    stop_at_once_on_interrupt()
    seconds = None if budget_minutes is None else 60 * budget_minutes
    make_book_here(file, data, runtime, only, seeds, parallel, seconds)
    if export is not None:
        run.export(export)
    print((export or run.folder) / "book.html")  # noqa: T201  plain, for scripts
