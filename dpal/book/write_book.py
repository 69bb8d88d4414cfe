"""Files of a book: its page, its text and its figures; and what is left, as a table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dpal.book.book_page import book_report
from dpal.book.book_run import FIGURES, PAGES, BookRun
from dpal.reports.report import Table
from dpal.reports.write_report_files import write_report_files


def write_book(run: BookRun) -> list[Path]:
    """Writes book.html, book.md and figures from the results that are there.

    Returns:
      The page and the text.
    """
    page, text = (run.folder / name for name in PAGES)
    return write_report_files(book_report(run), text=text, page=page, figures=run.folder / FIGURES)


def cells_left_table(run: BookRun) -> Table:
    """Cells by table: wanted, done, and to be made."""
    left = {order.cell.digest for order in run.orders()}
    wanted = Counter(cell.table for cell in run.cells)
    to_make = Counter(cell.table for cell in run.cells if cell.digest in left)
    rows = tuple(
        (name, f"{count:,}", f"{count - to_make[name]:,}", f"{to_make[name]:,}")
        for name, count in wanted.items()
    )
    return Table("Cells", ("table", "wanted", "done", "to be made"), rows)
