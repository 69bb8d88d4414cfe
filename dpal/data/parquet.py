"""Parquet files read in batches of bounded memory, whatever stands in them.

A file is somebody else's: it may be damaged, and it may unpack to a thousand times its size.
Sizes are looked at before anything is unpacked, and every failure is one sentence about the
file. Row groups and pages are those that a writer makes; of a page that spreads one row over
others, its own part counts. Where it lies, on this machine or in object storage, is nothing that
anybody above has to know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from numpy.typing import NDArray

from dpal.data.parquet_page_headers import Page, pages_of
from dpal.data.verified_row_groups import KnownFile, RowGroups, opened
from dpal.errors import DataError, DpalError

if TYPE_CHECKING:  # a served model reads no file
    from dpal.data.pool_file_digests import LearnedFiles
    from dpal.files.stored_objects import Place

BATCH_ROWS = 1024
BATCH_BYTES = 2**28  # decoded records of one batch
# Of a large one, where records are small: while it is looked at, it lies in the cache of a core.
LARGE_ROWS, LARGE_BYTES = 2**16, 2**22

MOST_VALUES = 2**24  # pixels of a picture, or numbers in a list
MOST_BYTES = {"text": 2**20, "bytes": 2**26}  # in one cell
_MOST_PAGE, _MOST_LISTED = 2**30, 2**26  # bytes, and numbers in lists, of one page
_READ_BYTES = 2**28  # unpacked at a time
_LISTED = 16  # bytes of a number in a list while it is read, with what says where it belongs
_BESIDE_PIXELS, _TIMES_PIXELS = 2**19, 4  # what a picture's file may hold besides, and of it

_DAMAGED = "the file is damaged, restore it"
_SMALLER = "bring it to a size that a model reads"

Refuse = Callable[..., DataError]

# Bytes of the first record of a batch once it is decoded; 0 where that cannot be said.
Weigh = Callable[[pa.RecordBatch], int]


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """Which rows of a file some values are, for messages.

    Attributes:
      path: the file.
      numbers: (n,) rows of it, the first being row 0, whatever a `split` column leaves out.
    """

    path: Place
    numbers: NDArray[np.int64]

    def slice(self, start: int, count: int) -> RowNumbers:
        """Those of the values from one position on, at most `count`."""
        return RowNumbers(self.path, self.numbers[start : start + count])


def row_error(
    rows: RowNumbers | None,
    position: int,
    says: str,
    *,
    refuse: Refuse = DataError,
    **private: object,
) -> DataError:
    """An error about the row of one value; only the data's owner reads which one it is.

    Args:
      rows: which rows the values are; None for records that were selected.
      position: of the value.
      says: what is wrong with it, with the names of `private` in braces.
      refuse: makes the error.
      private: what else only the owner reads.
    """
    if rows is None:
        return refuse(f"a record {says}", **private)
    named = f"{rows.path} (its first row is row 0): row {{row}}"
    return refuse(f"{named} {says}", row=rows.numbers[position], **private)


@contextmanager
def reading(path: Place, advice: str = _DAMAGED, refuse: Refuse = DataError) -> Iterator[None]:
    """Turns whatever a damaged file makes its reader raise into one sentence.

    Raises:
      DataError: in place of it. What the reader says may quote private values, and is left out.
    """
    try:
        yield
    except DpalError:
        raise
    except Exception as error:
        raise refuse(f"{path} cannot be read ({type(error).__name__}); {advice}") from error


def metadata_of(path: Place) -> pq.FileMetaData:
    """What a file's footer says: its row groups, and where they lie.

    Raises:
      DataError: it cannot be read.
      StoreError: its store does not answer, or gives no access.
    """
    with reading(path), opened(path) as file:
        return file.metadata


def schema_of(path: Place, refuse: Refuse = DataError) -> pa.Schema:
    """The columns of a file, each with a name of its own.

    Raises:
      DataError: it is no Parquet file, or two columns have one name.
      StoreError: its store does not answer, or gives no access.
    """
    try:
        with opened(path) as file:
            schema = file.metadata.schema.to_arrow_schema()
        names = [str(name) for name in schema.names]
    except DpalError:
        raise
    except Exception as error:  # no text for a name, a type that is unknown, a cut file
        raise refuse(
            f"{path} is not a readable Parquet file; restore it, or write it again"
        ) from error
    if (twice := named_twice(names)) is not None:
        raise refuse(
            f"{path} has {names.count(twice)} columns named {twice!r}; give each a name of its own"
        )
    return schema


def named_twice(names: Sequence[str]) -> str | None:
    """The first name that several columns have; None where each has its own."""
    return next((name for name, columns in Counter(names).items() if columns > 1), None)


def read_batches(
    path: Place,
    columns: Sequence[str],
    *,
    weigh: Weigh = lambda batch: 0,
    large: bool = False,
    groups: Sequence[int] | None = None,
    skip: int = 0,
    rows: int | None = None,
    known: KnownFile | None = None,
    learned: LearnedFiles | None = None,
    advice: str = _DAMAGED,
    refuse: Refuse = DataError,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields rows in file order: the number of the first one in the file, and the batch.

    A batch ends when BATCH_ROWS rows, counted from the first one of all, are full, and before
    that after as many as fit into BATCH_BYTES once they are decoded. That depends on the shape
    of a record alone, which is public: with whom a record is scored must not depend on others.
    A large batch is several of them.

    Args:
      path: the file.
      columns: names of columns.
      weigh: says how large the first record of a batch is once it is decoded.
      large: whether batches may be large: for readers to whom it does not matter what a record
        is read with.
      groups: row groups to read, one after the other; None is all.
      skip: rows of them to leave out first.
      rows: how many are wanted; None is all.
      known: what the file must hold.
      learned: learns what it holds.
      advice: what to do about a file that cannot be read.
      refuse: makes the error.

    Raises:
      DataError: the file is damaged, or holds a value that is larger than any that is read.
      DataChanged: it does not hold what is `known` of it.
      StoreError: its store does not answer, or gives no access.
    """
    first = row = 0
    try:
        with opened(path, known) as file:
            wanted = list(range(file.metadata.num_row_groups)) if groups is None else list(groups)
            first = row = skip + (file.rows_before(wanted[0]) if wanted else 0)
            pieces = _unpacked(path, file, columns, wanted, learned, large=large)
            held, there, filled = list[pa.RecordBatch](), 0, 0
            for piece in _trimmed(pieces, skip, rows):
                while piece.num_rows:
                    if not held and (row - first) % BATCH_ROWS == 0:
                        weight = weigh(piece)
                        size = _rows_that_fit(weight, large=large)
                    part = piece.slice(0, size - there)
                    _require_readable(path, row + there, part, weight)
                    held.append(part)
                    piece = piece.slice(part.num_rows)
                    there, filled = there + part.num_rows, filled + part.nbytes
                    full = large and filled >= LARGE_BYTES and there % BATCH_ROWS == 0
                    if full or there == size:
                        yield row, _joined(held)
                        row, held, there, filled = row + there, [], 0, 0
            if held:
                yield row, _joined(held)
    except DpalError:
        raise
    except Exception as error:  # whatever a damaged file makes its reader raise
        raise refuse(
            f"{path} cannot be read from row {row} on ({type(error).__name__}); {advice}"
        ) from error


def _trimmed(
    pieces: Iterator[pa.RecordBatch], skip: int, rows: int | None
) -> Iterator[pa.RecordBatch]:
    """Leaves rows out at the beginning, and all that are not wanted at the end."""
    for piece in pieces:
        kept = piece.slice(min(skip, piece.num_rows))
        skip -= piece.num_rows - kept.num_rows
        if rows is not None:
            kept = kept.slice(0, rows)
            rows -= kept.num_rows
        if kept.num_rows:
            yield kept
        if rows == 0:
            return


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _rows_that_fit(weight: int, *, large: bool) -> int:
    """Rows of a batch: a power of two, so that batches end together with blocks of BATCH_ROWS."""
    rows = _power_of_two(BATCH_BYTES // max(1, weight), BATCH_ROWS)
    if not large or rows < BATCH_ROWS:
        return rows
    return max(rows, _power_of_two(LARGE_BYTES // max(1, weight), LARGE_ROWS))


def _power_of_two(most: int, bound: int = LARGE_ROWS) -> int:
    """The largest one that is at most `most`, between 1 and a bound that is one."""
    return min(bound, 1 << max(0, most.bit_length() - 1))


def _unpacked(
    path: Place,
    file: RowGroups,
    columns: Sequence[str],
    groups: Sequence[int],
    learned: LearnedFiles | None,
    *,
    large: bool,
) -> Iterator[pa.RecordBatch]:
    """Unpacks row groups one after the other, a few rows at a time."""
    leaves = file.leaves(columns)
    if learned is not None:
        learned.begin(file)
    # Read ahead, row groups would stay in memory until the file is closed.
    with pq.ParquetFile(file, metadata=file.metadata, pre_buffer=False) as arrow:
        for group in groups:
            contents = file.fetch(group, leaves)
            if learned is not None:
                learned.add(group, contents)
            del contents
            most = _rows_in_cache(file, leaves, group) if large else BATCH_ROWS
            at_once = min(_rows_at_once(path, file, leaves, group), most)
            yield from arrow.iter_batches(
                at_once, row_groups=[group], columns=list(columns), use_threads=len(leaves) > 1
            )
    if learned is not None:
        learned.end()


def _rows_in_cache(file: RowGroups, leaves: Sequence[int], group: int) -> int:
    """Rows of a row group that have about LARGE_BYTES when they are unpacked, rather more.

    A batch is a part of them; of two parts it would be a copy.
    """
    about = file.metadata.row_group(group)
    size = sum(about.column(leaf).total_uncompressed_size for leaf in leaves)
    return max(BATCH_ROWS, _power_of_two(2 * LARGE_BYTES * about.num_rows // max(1, size)))


def _rows_at_once(path: Place, file: RowGroups, leaves: Sequence[int], group: int) -> int:
    """Rows of a row group that can be unpacked together, by what the headers of its pages say.

    Raises:
      DataError: a page, or a value in it, is larger than any that is read.
    """
    about, least = file.metadata.row_group(group), LARGE_ROWS
    for leaf in leaves:
        column = about.column(leaf)
        pages = list(pages_of(file, column))
        listed = file.metadata.schema.column(leaf).max_repetition_level > 0
        if excess := _excess(column, pages, about.num_rows, listed=listed):
            raise DataError(f"column {column.path_in_schema!r} of {path} {excess}; {_SMALLER}")
        if listed:
            least = min(least, _rows_of_lists(column, pages))
        elif column.physical_type == "BYTE_ARRAY":
            rows = _rows_of_bytes(column, pages)
            if rows < least and (longest := _longest_in_dictionary(file, group, column, pages)):
                rows = max(rows, _power_of_two(LARGE_BYTES // longest))
            least = min(least, rows)
    return least


def _excess(
    column: pq.ColumnChunkMetaData, pages: Sequence[Page], rows: int, *, listed: bool
) -> str:
    """What is too large in a column of one row group; empty if nothing is."""
    if listed and column.num_values > MOST_VALUES * rows:
        return (
            f"has lists of {column.num_values:,} numbers in {rows:,} rows, and at most "
            f"{MOST_VALUES:,} are read of one row"
        )
    for page in pages:
        if listed and page.values > _MOST_LISTED:
            return f"has {page.values:,} numbers at once, and at most {_MOST_LISTED:,} are read"
        most = MOST_BYTES["bytes"] if column.physical_type == "BYTE_ARRAY" else _MOST_PAGE
        if page.unpacked > min(_MOST_PAGE, most * max(1, page.values)):
            return (
                f"unpacks to {page.unpacked:,} bytes for {page.values:,} values at once, and at "
                f"most {_MOST_PAGE:,} are read, {most:,} of one value"
            )
    return ""


def _rows_of_lists(column: pq.ColumnChunkMetaData, pages: Sequence[Page]) -> int:
    """One row may have all numbers of its page: a run of equal ones takes some bytes."""
    if column.num_values * _LISTED <= _READ_BYTES:
        return LARGE_ROWS
    longest = max((page.values for page in pages), default=1)
    return _power_of_two(_READ_BYTES // (_LISTED * max(1, longest)))


def _rows_of_bytes(column: pq.ColumnChunkMetaData, pages: Sequence[Page]) -> int:
    """Each row may have the largest value of a dictionary, or all but nothing of a page."""
    whole = sum(page.unpacked for page in pages)
    if whole <= _READ_BYTES and not column.has_dictionary_page:
        return LARGE_ROWS
    largest = max((page.unpacked for page in pages), default=1)
    return _power_of_two(_READ_BYTES // max(1, largest))


def _longest_in_dictionary(
    file: RowGroups, group: int, column: pq.ColumnChunkMetaData, pages: Sequence[Page]
) -> int:
    """Bytes of the longest value that a dictionary has; 0 where it cannot be told.

    A row takes these, or its part of a page that is not packed by the dictionary. What Arrow shows
    is the dictionary of the file, and not one of its own making, if both have as many values and
    bytes: each value lies behind four bytes with its length.
    """
    dictionary = pages[0] if pages and column.has_dictionary_page else None
    if dictionary is None or dictionary.unpacked > LARGE_BYTES:
        return 0
    if sum(page.unpacked for page in pages) > _READ_BYTES:
        return 0
    name = column.path_in_schema
    with pq.ParquetFile(
        file, metadata=file.metadata, pre_buffer=False, read_dictionary=[name]
    ) as arrow:
        rows = arrow.iter_batches(1, row_groups=[group], columns=[name], use_threads=False)
        values = next((batch.column(0) for batch in rows), None)
    if values is None or not pt.is_dictionary(values.type):
        return 0
    lengths = np.asarray(pc.binary_length(values.dictionary))
    there = lengths.size, lengths.sum(dtype=np.int64) + 4 * lengths.size
    if there != (dictionary.values, dictionary.unpacked):
        return 0
    return int(lengths.max(initial=1))


def _require_readable(path: Place, first: int, batch: pa.RecordBatch, weight: int) -> None:
    """Requires values that are what their types say, none of them too large.

    Args:
      path: of the file, for messages.
      first: row of the file that is the batch's first.
      batch: the rows.
      weight: bytes of a record once it is decoded, 0 where that is not known.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            position = _first_without_text(column)
            if position is None:
                raise
            raise row_error(
                _rows_from(path, first, batch),
                position,
                f"has a {name!r} that is no text in UTF-8; write the file again in that encoding",
            ) from None
        lengths, most, unit = _lengths(column, weight)
        if lengths is None or not len(lengths) or lengths.null_count == len(lengths):
            continue
        longest = np.asarray(pc.fill_null(lengths, 0) if lengths.null_count else lengths)
        if longest.max() > most:
            position = int(longest.argmax())
            raise row_error(
                _rows_from(path, first, batch),
                position,
                f"has {{count}} {unit} in column {name!r}, and at most {most:,} are read there; "
                f"{_SMALLER}",
                count=f"{longest[position]:,}",
            )


def _rows_from(path: Place, first: int, batch: pa.RecordBatch) -> RowNumbers:
    return RowNumbers(path, np.arange(first, first + batch.num_rows))


def _lengths(column: pa.Array, weight: int) -> tuple[pa.Array | None, int, str]:
    """How large each value is, how large it may be, and in which unit."""
    kind = column.type
    if pt.is_string(kind) or pt.is_large_string(kind):
        return pc.binary_length(column), MOST_BYTES["text"], "bytes of text"
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        most = MOST_BYTES["bytes"]
        beside = _BESIDE_PIXELS + _TIMES_PIXELS * weight
        return pc.binary_length(column), min(most, beside) if weight else most, "bytes"
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pc.list_value_length(column), MOST_VALUES, "numbers"
    return None, 0, ""


def _first_without_text(column: pa.Array) -> int | None:
    """The first value that should be a text and cannot be decoded."""
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)):
        return None
    for position, value in enumerate(column):
        try:
            value.as_py()
        except UnicodeDecodeError:
            return position
    return None
