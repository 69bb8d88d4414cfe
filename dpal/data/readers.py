"""Streams of records: memory holds one batch, however long the file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpal.data.parquet import BATCH_BYTES, RowNumbers, Weigh, read_batches, row_error
from dpal.data.parquet import BATCH_ROWS as BATCH_ROWS
from dpal.data.pictures import DECODING_THREADS, Shape, decode_pictures, picture_shape
from dpal.data.sources import Content, Role, Source
from dpal.data.texts import TextEncoding
from dpal.errors import DataError

if TYPE_CHECKING:  # a served model reads no file
    from dpal.data.pool_file_digests import LearnedFiles

PIXELS = {torch.uint8: 255.0, torch.uint16: 65535.0}  # white, by the type of decoded images

_TEXT = Content.TEXT.value


@dataclass(frozen=True)
class RawBatch:
    """Consecutive rows of a source, as Arrow arrays.

    Attributes:
      first_row: position of the first row among the rows of the source's role.
      table: the columns asked for.
      numbers: which rows of which file they are.
    """

    first_row: int
    table: pa.RecordBatch
    numbers: RowNumbers

    @property
    def rows(self) -> NDArray[np.int64]:
        """Positions of all rows, shape (n_rows,)."""
        return np.arange(self.first_row, self.first_row + self.table.num_rows, dtype=np.int64)


def raw_batches(
    source: Source, columns: list[str], *, large: bool = False, learned: LearnedFiles | None = None
) -> Iterator[RawBatch]:
    """Yields the rows of a source's role in file order.

    Args:
      source: what is read.
      columns: names of columns; `Content.TEXT` stands for the struct of a source's texts.
      large: whether batches may have some ten thousand rows, where these are small: for readers to
        whom it does not matter what a record is read with.
      learned: learns what the files hold.

    Raises:
      DataError: the file cannot be read to its end.
      DataChanged: a file does not hold what is known of it.
    """
    first_row, wanted = 0, wanted_columns(source, columns)
    weigh = record_bytes(source, columns)
    for number, path in enumerate(source.paths):
        known = source.known_file(number)
        for row, batch in read_batches(
            path, wanted, weigh=weigh, large=large, known=known, learned=learned
        ):
            kept, positions = rows_of_role(source, batch, columns)
            if kept.num_rows:
                yield RawBatch(first_row, kept, RowNumbers(path, row + positions))
                first_row += kept.num_rows


def usual_batches(batch: RawBatch) -> Iterator[slice]:
    """Where the batches lie that a large one is made of: each has the rows that it has by itself.

    Args:
      batch: a large one.
    """
    blocks = batch.numbers.numbers // BATCH_ROWS
    cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), blocks.size]
    return (slice(*pair) for pair in pairwise(cuts))


def record_bytes(source: Source, columns: list[str]) -> Weigh:
    """What says how large a record of a source is once it is decoded, by the first of a batch."""
    name = source.content.value
    if name not in columns or source.content is Content.TEXT:
        return lambda batch: 0

    def first_record(batch: pa.RecordBatch) -> int:
        value = batch.column(name)[0].as_py()
        if source.content is Content.FEATURES:
            return 4 * len(value or ())
        shape = picture_shape(value) if value is not None else None
        # Of one that cannot be read no second one is fetched: the first is refused.
        return BATCH_BYTES if shape is None else math.prod(shape) * (2 if source.deep else 1)

    return first_record


def wanted_columns(source: Source, columns: list[str]) -> list[str]:
    """Names of a file's columns behind those that `raw_batches` is asked for."""
    stands_for = {_TEXT: source.texts} if source.texts else {}
    wanted = [column for name in columns for column in stands_for.get(name, (name,))]
    deciding = ["split"] if source.has_split else []
    if source.held_out is not None and source.held_out.column not in wanted:
        deciding.append(source.held_out.column)
    return [*wanted, *deciding]


def rows_of_role(
    source: Source, batch: pa.RecordBatch, columns: list[str]
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """Rows of a source's role, with its texts as one column of structs; and which ones they are.

    Args:
      source: what is read.
      batch: rows of its file, with `wanted_columns`.
      columns: as `raw_batches` is asked for them.

    Returns:
      m rows, and (m,) their positions in the batch.
    """
    positions = np.arange(batch.num_rows, dtype=np.int64)
    if source.has_split:
        mine = pc.fill_null(pc.equal(batch.column("split"), source.role.value), False)
        batch, positions = batch.filter(mine), positions[np.asarray(mine)]
    if source.held_out is not None:
        names = batch.column(source.held_out.column).cast(pa.string()).to_pylist()
        held_out = np.array(source.held_out.holds_out(names), dtype=np.bool_)
        own = held_out if source.role is Role.VALIDATION else ~held_out
        batch, positions = batch.filter(pa.array(own)), positions[own]
    if not source.texts or _TEXT not in columns:
        return batch.select(columns), positions
    texts = pa.StructArray.from_arrays([batch.column(name) for name in source.texts], source.texts)
    values = [texts if name == _TEXT else batch.column(name) for name in columns]
    return pa.record_batch(values, list(columns)), positions


def records_of(source: Source, column: pa.Array, *, rows: RowNumbers | None) -> Tensor:
    """Turns a source's own column of records into what a model sees: decoded, or features."""
    return apply_extractor(source, decoded_of(source, column, rows=rows))


def decoding_threads() -> int:
    """Threads that may decode pictures for one reader: no more than torch may use here."""
    return min(DECODING_THREADS, torch.get_num_threads())


def decoded_of(
    source: Source,
    column: pa.Array,
    *,
    rows: RowNumbers | None,
    shape: Shape | None = None,
    threads: int = 1,
) -> Tensor:
    """Turns a source's own column of records into one tensor, as `decode` does."""
    return decode(
        source.content,
        column,
        rows=rows,
        encoding=source.encoding,
        shape=shape,
        deep=source.deep,
        threads=threads,
    )


def blank_record(source: Source, shape: Sequence[int]) -> Tensor:
    """A record (1, *shape) of zeros, of the type that a source's records have for a model."""
    pixels = torch.uint16 if source.deep else torch.uint8
    kinds = {Content.IMAGE: pixels, Content.TEXT: torch.int32}
    kind = kinds.get(source.content, torch.float32) if source.extractor is None else torch.float32
    return torch.zeros((1, *shape), dtype=kind)


def apply_extractor(source: Source, decoded: Tensor) -> Tensor:
    """Puts decoded records through a source's extractor, if it has one."""
    return decoded if source.extractor is None else source.extractor(decoded)


def decode(
    content: Content,
    column: pa.Array,
    *,
    rows: RowNumbers | None,
    encoding: TextEncoding | None = None,
    shape: Shape | None = None,
    deep: bool = False,
    threads: int = 1,
) -> Tensor:
    """Turns a column of records into one tensor.

    Args:
      content: what a record consists of.
      column: the column's values, n of them.
      rows: which rows they are, for messages; None where that is nobody's business.
      encoding: what turns texts into records.
      shape: what all images must have; None takes the first one's.
      deep: whether images become 16 bits a pixel, or 8.
      threads: at most so many decode images.

    Returns:
      Images: (n, channels, height, width) uint8, or uint16 where they are deep.
      Features: (n, width) float32. Texts: (n, 2, max_tokens) int32.

    Raises:
      DataError: a record is missing, cannot be read, or differs in shape from the first.
    """
    if column.null_count:
        position = int(pc.index(pc.is_null(column), True).as_py())
        raise row_error(rows, position, f"has no {content}; remove the row or fill it in")
    if content is Content.FEATURES:
        return _features(column, rows)
    if content is Content.TEXT:
        if encoding is None:
            raise DataError(
                "the data holds texts; set model.name: text_classifier and model.weights to the "
                "folder of a public BERT-type model, whose tokenizer reads them"
            )
        return encoding.encode(column, rows=rows)
    return torch.from_numpy(
        decode_pictures(column, rows=rows, shape=shape, deep=deep, threads=threads)
    )


def to_input(raw: Tensor) -> Tensor:
    """Scales decoded records for a model by public constants: pixels to [-1, 1]."""
    if raw.dtype in PIXELS:
        return raw.float() / (PIXELS[raw.dtype] / 2) - 1
    return raw.float() if raw.dtype == torch.float16 else raw  # features are stored in halves


def to_unit(pixels: Tensor) -> Tensor:
    """Scales decoded images of either depth to [0, 1]."""
    return pixels.float() / PIXELS[pixels.dtype]


def _features(column: pa.Array, rows: RowNumbers | None) -> Tensor:
    # Lists of unequal lengths, cut anew, would mix the content of different records.
    lengths = np.asarray(pc.list_value_length(column))
    if not 0 < lengths.min() == lengths.max():
        odd = np.flatnonzero((lengths != lengths[0]) | (lengths == 0))
        raise row_error(
            rows,
            int(odd[0]),
            "has {count} features and others have {others}; give all records the same number, at "
            "least one",
            count=lengths[odd[0]],
            others=lengths[0],
        )
    stored = column.flatten()
    values = np.asarray(stored, dtype=np.float32).reshape(len(column), -1)
    # The sum of squares is finite only of finite numbers; that of large ones may overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        looks_whole = np.isfinite(np.vdot(values, values))
    if not looks_whole and not (finite := np.isfinite(values).all(axis=1)).all():
        raise row_error(
            rows,
            int(np.argmin(finite)),
            "has a feature that is missing, NaN or infinite; fill it in",
        )
    if values.flags.writeable:  # they became other numbers on the way
        return torch.from_numpy(values)
    return torch.utils.dlpack.from_dlpack(stored).view(
        len(column), -1
    )  # in Arrow's memory, not copied
