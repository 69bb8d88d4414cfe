"""Streams of records: memory holds one batch, however long the file."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from dpal.data.catalog import Content, Source
from dpal.data.texts import TextEncoding
from dpal.errors import DataError

BATCH_ROWS = 1024

_TEXT = Content.TEXT.value


@dataclass(frozen=True)
class RawBatch:
    """Consecutive rows of a source, as Arrow arrays.

    Attributes:
      first_row: position of the first row among the rows of the source's role.
      table: the columns asked for.
    """

    first_row: int
    table: pa.RecordBatch

    @property
    def rows(self) -> NDArray[np.int64]:
        """Positions of all rows, shape (n_rows,)."""
        return np.arange(self.first_row, self.first_row + self.table.num_rows, dtype=np.int64)


def raw_batches(source: Source, columns: list[str]) -> Iterator[RawBatch]:
    """Yields the rows of a source's role in file order.

    Args:
      source: what is read.
      columns: names of columns; `Content.TEXT` stands for the struct of a source's texts.

    Raises:
      DataError: the file cannot be read to its end.
    """
    first_row, path, wanted = 0, source.paths[0], wanted_columns(source, columns)
    try:
        for path in source.paths:
            # Read ahead, row groups would stay in memory until the file is closed.
            with pq.ParquetFile(path, pre_buffer=False) as file:
                for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
                    kept = rows_of_role(source, batch, columns)
                    if kept.num_rows:
                        yield RawBatch(first_row, kept)
                        first_row += kept.num_rows
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path} cannot be read from row {first_row} on ({type(error).__name__}); the "
            "file is damaged, restore it"
        ) from error


def wanted_columns(source: Source, columns: list[str]) -> list[str]:
    """Names of a file's columns behind those that `raw_batches` is asked for."""
    stands_for = {_TEXT: source.texts} if source.texts else {}
    wanted = [one for name in columns for one in stands_for.get(name, (name,))]
    return [*wanted, "split"] if source.has_split else wanted


def rows_of_role(source: Source, batch: pa.RecordBatch, columns: list[str]) -> pa.RecordBatch:
    """Rows of a source's role, with its texts as one column of structs.

    Args:
      source: what is read.
      batch: rows of its file, with `wanted_columns`.
      columns: as `raw_batches` is asked for them.
    """
    if source.has_split:
        batch = batch.filter(pc.equal(batch.column("split"), source.role.value))
    if not source.texts or _TEXT not in columns:
        return batch.select(columns)
    texts = pa.StructArray.from_arrays([batch.column(name) for name in source.texts], source.texts)
    values = [texts if name == _TEXT else batch.column(name) for name in columns]
    return pa.record_batch(values, list(columns))


def records_of(source: Source, column: pa.Array, *, first_row: int) -> Tensor:
    """Turns a source's own column of records into what a model sees: decoded, or features."""
    return extracted(source, decoded_of(source, column, first_row=first_row))


def decoded_of(source: Source, column: pa.Array, *, first_row: int) -> Tensor:
    """Turns a source's own column of records into one tensor, as `decode` does."""
    return decode(source.content, column, first_row=first_row, encoding=source.encoding)


def blank_record(source: Source, shape: Sequence[int]) -> Tensor:
    """A record (1, *shape) of zeros, of the type that a source's records have for a model."""
    kinds = {Content.IMAGE: torch.uint8, Content.TEXT: torch.int32}
    kind = kinds.get(source.content, torch.float32) if source.extractor is None else torch.float32
    return torch.zeros((1, *shape), dtype=kind)


def extracted(source: Source, decoded: Tensor) -> Tensor:
    """Puts decoded records through a source's extractor, if it has one."""
    return decoded if source.extractor is None else source.extractor(decoded)


def decode(
    content: Content, column: pa.Array, *, first_row: int, encoding: TextEncoding | None = None
) -> Tensor:
    """Turns a column of records into one tensor.

    Args:
      content: what a record consists of.
      column: the column's values, n of them.
      first_row: position of the first value, for messages.
      encoding: what turns texts into records.

    Returns:
      Images: (n, channels, height, width) uint8. Features: (n, width) float32.
      Texts: (n, 2, max_tokens) int32.

    Raises:
      DataError: a record is missing, cannot be read, or differs in shape from the first.
    """
    if column.null_count:
        row = first_row + int(pc.index(pc.is_null(column), True).as_py())
        raise DataError(f"row {{row}} has no {content}; remove the row or fill it in", row=row)
    if content is Content.FEATURES:
        return _features(column, first_row)
    if content is Content.TEXT:
        if encoding is None:
            raise DataError(
                "the data holds texts; set model.name: text_classifier and model.weights to the "
                "folder of a public BERT-type model, whose tokenizer reads them"
            )
        return encoding.encode(column, first_row=first_row)
    arrays = [_pixels(value, first_row + i) for i, value in enumerate(column.to_pylist())]
    shape = arrays[0].shape
    for i, array in enumerate(arrays):
        if array.shape != shape:
            raise DataError(
                "row {row} has an image of shape {shape}, others have {others}; bring all images "
                "to one size and mode",
                row=first_row + i,
                shape=array.shape,
                others=shape,
            )
    return torch.from_numpy(np.stack(arrays))


def to_input(raw: Tensor) -> Tensor:
    """Scales decoded records for a model by public constants: pixels to [-1, 1]."""
    if raw.dtype == torch.uint8:
        return raw.float() / 127.5 - 1
    return raw.float() if raw.dtype == torch.float16 else raw  # features are stored in halves


_FORMATS = ("PNG", "JPEG")  # no other of Pillow's readers ever sees a pool's bytes

# Pillow's readers raise all of these for files that are cut short or altered.
_BROKEN_IMAGE = (
    UnidentifiedImageError,
    Image.DecompressionBombError,
    OSError,
    SyntaxError,
    ValueError,
)


def _pixels(encoded: bytes, row: int) -> NDArray[np.uint8]:
    try:
        with Image.open(io.BytesIO(encoded), formats=_FORMATS) as image:
            mode = "L" if image.mode in ("1", "L", "I;16") else "RGB"
            array = np.array(image if image.mode == mode else image.convert(mode), dtype=np.uint8)
    except _BROKEN_IMAGE as error:
        raise DataError("row {row} holds no readable PNG or JPEG image", row=row) from error
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _features(column: pa.Array, first_row: int) -> Tensor:
    # Lists of unequal lengths, cut anew, would mix the content of different records.
    lengths = np.asarray(pc.list_value_length(column))
    odd = np.flatnonzero((lengths != lengths[0]) | (lengths == 0))
    if odd.size:
        raise DataError(
            "row {row} has {count} features and others have {others}; give all records the same "
            "number, at least one",
            row=first_row + int(odd[0]),
            count=lengths[odd[0]],
            others=lengths[0],
        )
    values = np.asarray(column.flatten(), dtype=np.float32).reshape(len(column), -1)
    broken = ~np.isfinite(values).all(axis=1)
    if broken.any():
        row = first_row + int(np.argmax(broken))
        raise DataError(
            "row {row} has a feature that is missing, NaN or infinite; fill it in", row=row
        )
    return torch.from_numpy(values.copy())
