"""What a person sees of a record: its picture or its texts."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

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
