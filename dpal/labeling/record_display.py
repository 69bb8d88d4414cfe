"""What a person sees of a record: its picture, its texts, or the cells of its table."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from dpal.data.importing.column_encoding import TableEncoding
from dpal.data.importing.recipe import recipe_in
from dpal.data.parquet import RowNumbers
from dpal.data.readers import decode, raw_batches
from dpal.data.sources import Content, Source
from dpal.data.texts import texts_in

Row = tuple[str, pa.Array, RowNumbers]  # id, the record's own column, where it stands


def rows_of(source: Source, ids: Sequence[str]) -> Iterator[Row]:
    """Yields some records, in the order of the file, in one pass over it."""
    wanted = pa.array(ids, pa.string())
    for batch in raw_batches(source, ["id", source.content]):
        names = batch.table.column(0).cast(pa.string())
        hits = pc.is_in(names, value_set=wanted)
        for index in np.flatnonzero(hits).tolist():
            # One at a time: a message counts the rows of the file, never the selected ones.
            column, row = batch.table.column(1).slice(index, 1), batch.numbers.slice(index, 1)
            yield names[index].as_py(), column, row


def texts_of(source: Source, ids: Sequence[str]) -> dict[str, list[str]]:
    """The texts of some records, one for each of `source.texts`, in one pass over the file."""
    return {name: list(texts_in(column, rows=row)[0]) for name, column, row in rows_of(source, ids)}


def shown_columns(source: Source) -> tuple[str, ...]:
    """Names of the columns that records have for people; none unless they came from a table."""
    encoding = _encoding(source)
    return () if encoding is None else tuple(column.name for column in encoding.columns)


def shown_cells(source: Source, ids: Sequence[str]) -> dict[str, list[str]]:
    """What some records of a table hold, one cell for each of `shown_columns`, in one pass.

    Numbers are what training sees of them: brought between those of held-out records.
    """
    encoding = _encoding(source)
    if encoding is None:
        return {}
    cells: dict[str, list[str]] = {}
    for name, column, row in rows_of(source, ids):
        values = decode(Content.FEATURES, column, rows=row).numpy()[0]
        cells[name] = list(encoding.decode(values.astype(np.float64)).values())
    return cells


def shown_lines(source: Source, ids: Sequence[str]) -> dict[str, str]:
    """Some records of a table as text: a line for each column that holds something."""
    names = shown_columns(source)
    return {
        record: "\n".join(f"{name}: {cell}" for name, cell in zip(names, row, strict=True) if cell)
        for record, row in shown_cells(source, ids).items()
    }


def _encoding(source: Source) -> TableEncoding | None:
    recipe = recipe_in(source.paths[0]) if source.content is Content.FEATURES else None
    return None if recipe is None else recipe.columns


def pictures_of(source: Source, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yields the id and the PNG of some records, in the order of the file."""
    for name, column, row in rows_of(source, ids):
        yield name, _png(decode(Content.IMAGE, column, rows=row).numpy()[0])


def _png(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    squeezed = array[0] if array.shape[0] == 1 else np.moveaxis(array, 0, -1)
    encoded = io.BytesIO()
    Image.fromarray(squeezed).save(encoded, format="PNG")
    return encoded.getvalue()
