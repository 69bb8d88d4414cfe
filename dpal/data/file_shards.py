"""Parts of a data file that several workers can read side by side.

A shard is a run of whole batches of `raw_batches`: whatever is computed batch by batch comes
out the same, to the last bit, however many shards there are. It says where its rows lie, and
holds none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from dpal import check
from dpal.data.parquet import RowNumbers, Weigh, metadata_of, read_batches, reading
from dpal.data.readers import BATCH_ROWS, RawBatch, record_bytes, rows_of_role, wanted_columns
from dpal.data.sources import Source
from dpal.data.verified_row_groups import KnownFile
from dpal.errors import DataError
from dpal.files.stored_objects import Place, size_of

# Results of a shard wait in memory: a longer pool has more shards, not longer ones.
MOST_ROWS = 256 * BATCH_ROWS
_ELSEWHERE = "see that all workers can read it and that it is whole"


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A run of rows of one of a source's files.

    Attributes:
      number: place among a source's shards, from 0.
      file: place of the file among the source's paths.
      start: first row in the file; a multiple of BATCH_ROWS.
      rows: of the file, from there on.
      first_row: position of its first row among the rows of the source's role.
      file_bytes: size of the file, by which another one is told from it.
      known: what the file must hold; None where nobody has read all of it.
    """

    number: int
    file: int
    start: int
    rows: int
    first_row: int
    file_bytes: int
    known: KnownFile | None = field(default=None, compare=False, repr=False)


def shards_of(source: Source, count: int) -> list[Shard]:
    """Cuts a source into shards of about the same length.

    Args:
      source: what is cut.
      count: shards, about; there are more where files end, and where one would be longer
        than MOST_ROWS.

    Raises:
      DataError: a file cannot be read.
    """
    check.at_least(1, shards=count)
    shards, first_row = list[Shard](), 0
    metadata = [
        metadata_of(path) if known is None else known.metadata
        for path, known in ((path, source.known_file(i)) for i, path in enumerate(source.paths))
    ]
    total = sum(file_metadata.num_rows for file_metadata in metadata)
    length = min(-(-total // (count * BATCH_ROWS)) * BATCH_ROWS, MOST_ROWS)
    for number, (path, about) in enumerate(zip(source.paths, metadata, strict=True)):
        size = size_of(path)
        for start, end in _cuts(about, length):
            shard = Shard(
                number=len(shards),
                file=number,
                start=start,
                rows=end - start,
                first_row=first_row,
                file_bytes=size,
                known=source.known_file(number),
            )
            shards.append(shard)
            first_row += _rows_of_role(source, path, about, shard)
    return shards


def shard_batches(
    source: Source, shard: Shard, columns: list[str], *, large: bool = False
) -> Iterator[RawBatch]:
    """Yields the batches of `raw_batches` that belong to a shard.

    Args:
      source: what is read.
      shard: of this source.
      columns: names of columns, as for `raw_batches`.
      large: as there; a large batch is several of the others.

    Raises:
      DataError: the file cannot be read, or is another than the one that was cut.
    """
    path, first_row = source.paths[shard.file], shard.first_row
    with reading(path, _ELSEWHERE, DataError.before_release):
        size, about = size_of(path), shard.known.metadata if shard.known else metadata_of(path)
    if size != shard.file_bytes:
        raise DataError.before_release(
            f"{path} has another size here than where the campaign runs; give all workers the same "
            "files"
        )
    wanted, weigh = wanted_columns(source, columns), record_bytes(source, columns)
    for row, batch in _read(path, about, shard, wanted, weigh, large=large):
        kept, positions = rows_of_role(source, batch, columns)
        if kept.num_rows:
            yield RawBatch(first_row, kept, RowNumbers(path, row + positions))
            first_row += kept.num_rows


def _cuts(metadata: pq.FileMetaData, length: int) -> Iterator[tuple[int, int]]:
    """Where a file's shards start and end: near the bounds of row groups where these are near."""
    bounds = [-(-start // BATCH_ROWS) * BATCH_ROWS for start in _starts(metadata)]
    start, total = 0, metadata.num_rows
    while start < total:
        end = start + length
        near = [bound for bound in bounds if start < bound <= end and bound > end - length // 4]
        end = min(near[-1] if near else end, total)
        yield start, end
        start = end


def _starts(metadata: pq.FileMetaData) -> list[int]:
    """First row of every row group."""
    starts = [0]
    for group in range(metadata.num_row_groups - 1):
        starts.append(starts[-1] + metadata.row_group(group).num_rows)
    return starts


def _rows_of_role(source: Source, path: Place, about: pq.FileMetaData, shard: Shard) -> int:
    deciding = wanted_columns(source, [])
    if not deciding:
        return shard.rows
    return sum(
        rows_of_role(source, batch, [])[1].size
        for _, batch in _read(path, about, shard, deciding, lambda batch: 0, large=True)
    )


def _read(
    path: Place,
    about: pq.FileMetaData,
    shard: Shard,
    columns: list[str],
    weigh: Weigh,
    *,
    large: bool,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A shard's rows in the batches of the whole file, from the row groups that hold them."""
    starts, end = _starts(about), shard.start + shard.rows
    ends = [*starts[1:], about.num_rows]
    groups = [i for i in range(len(starts)) if starts[i] < end and ends[i] > shard.start]
    return read_batches(
        path,
        columns,
        weigh=weigh,
        large=large,
        groups=groups,
        skip=shard.start - starts[groups[0]],
        rows=shard.rows,
        known=shard.known,
        advice=_ELSEWHERE,
        refuse=DataError.before_release,
    )
