"""What rows of a table say of themselves besides their record: name, group, part."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dpal.data.importing.cells import cell_names, cell_text, cell_texts
from dpal.data.importing.source_table import SourceTable, made_name


def ids_of(
    table: SourceTable, cells: pa.RecordBatch, column: str | None, numbers: Sequence[int]
) -> list[str]:
    """Names of rows: their own, or those of their file and number."""
    made = [made_name(table.place, number) for number in numbers]
    if column is None:
        return made
    own = cell_names(cells.column(column))
    return [given or other for given, other in zip(own, made, strict=True)]


def cells_of(cells: pa.RecordBatch, name: str | None) -> list[str | None]:
    """The cells of a column as texts; None of each row where there is no such column."""
    return [None] * cells.num_rows if name is None else cell_texts(cells.column(name))


def splits_of(cells: pa.RecordBatch, name: str | None, of_file: str | None) -> list[str | None]:
    """The part that each row is of, by its column, or else by its file."""
    return [of_file] * cells.num_rows if name is None else cell_texts(cells.column(name))


def rows_asked_for(cells: pa.RecordBatch, only: Sequence[tuple[str, Sequence[str]]]) -> list[bool]:
    """Whether each row has one of the wanted texts in every column that somebody chose by."""
    asked = [True] * cells.num_rows
    for name, wanted in only:
        known = {*wanted, *filter(None, map(cell_text, wanted))}
        texts = cell_texts(cells.column(name), wanted)
        asked = [so_far and text in known for so_far, text in zip(asked, texts, strict=True)]
    return asked
