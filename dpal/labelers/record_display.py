"""What a person sees of a record: its picture, its texts, or the cells of its table."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from dpal.data.importing.columns import TableEncoding
from dpal.data.importing.recipe import recipe_in
from dpal.data.readers import decode, raw_batches
from dpal.data.sources import Content, Source
from dpal.data.texts import texts_in


def texts_of(source: Source, ids: Sequence[str]) -> dict[str, list[str]]:
    """The texts of some records, one for each of `source.texts`, in one pass over the file."""
    wanted = pa.array(ids, pa.string())
    texts: dict[str, list[str]] = {}
    for batch in raw_batches(source, ["id", Content.TEXT]):
        names = batch.table.column(0).cast(pa.string())
        hits = pc.is_in(names, value_set=wanted)
        for index in np.flatnonzero(hits).tolist():
            # One at a time: a message counts the rows of the file, never the selected ones.
            column, row = batch.table.column(1).slice(index, 1), batch.numbers.slice(index, 1)
            texts[names[index].as_py()] = list(texts_in(column, rows=row)[0])
    return texts


def shown_columns(source: Source) -> tuple[str, ...]:
    """Names of the columns that records have for people; none unless they came from a table."""
    encoding = _encoding(source)
    return () if encoding is None else tuple(column.name for column in encoding.columns)


def shown_cells(source: Source, ids: Sequence[str]) -> dict[str, list[str]]:
    """What some records of a table hold, one cell for each of `shown_columns`, in one pass.

    Numbers are what training sees of them: brought between those of held-out records.
    """
    wanted, encoding = pa.array(ids, pa.string()), _encoding(source)
    cells: dict[str, list[str]] = {}
    if encoding is None:
        return cells
    for batch in raw_batches(source, ["id", Content.FEATURES]):
        names = batch.table.column(0).cast(pa.string())
        hits = pc.is_in(names, value_set=wanted)
        for index in np.flatnonzero(hits).tolist():
            column, row = batch.table.column(1).slice(index, 1), batch.numbers.slice(index, 1)
            values = decode(Content.FEATURES, column, rows=row).numpy()[0]
            cells[names[index].as_py()] = list(encoding.decode(values.astype(np.float64)).values())
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
    wanted = pa.array(ids, pa.string())
    for batch in raw_batches(source, ["id", Content.IMAGE]):
        names = batch.table.column(0).cast(pa.string())
        hits = pc.is_in(names, value_set=wanted)
        for index in np.flatnonzero(hits).tolist():
            column, row = batch.table.column(1).slice(index, 1), batch.numbers.slice(index, 1)
            pixels = decode(Content.IMAGE, column, rows=row).numpy()
            yield names[index].as_py(), _png(pixels[0])


def _png(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    squeezed = array[0] if array.shape[0] == 1 else np.moveaxis(array, 0, -1)
    encoded = io.BytesIO()
    Image.fromarray(squeezed).save(encoded, format="PNG")
    return encoded.getvalue()
