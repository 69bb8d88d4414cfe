"""Parts of a data file that several workers can read side by side.

A shard is a run of whole batches of `raw_batches`: whatever is computed batch by batch comes
out the same, to the last bit, however many shards there are. It says where its rows lie, and
holds none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpal import check
from dpal.data.catalog import Source
from dpal.data.readers import BATCH_ROWS, RawBatch, rows_of_role, wanted_columns
from dpal.errors import DataError

# Results of a shard wait in memory: a longer pool has more shards, not longer ones.
MOST_ROWS = 256 * BATCH_ROWS


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
    """

    number: int
    file: int
    start: int
    rows: int
    first_row: int
    file_bytes: int


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
    path, found, first_row = source.paths[0], list[Shard](), 0
    try:
        total = sum(pq.read_metadata(path).num_rows for path in source.paths)
        length = min(-(-total // (count * BATCH_ROWS)) * BATCH_ROWS, MOST_ROWS)
        for number, path in enumerate(source.paths):
            with pq.ParquetFile(path, pre_buffer=False) as file:
                for start, end in _cuts(file.metadata, length):
                    shard = Shard(
                        number=len(found),
                        file=number,
                        start=start,
                        rows=end - start,
                        first_row=first_row,
                        file_bytes=path.stat().st_size,
                    )
                    found.append(shard)
                    first_row += _rows_of_role(source, file, shard)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}); the file is damaged, restore it"
        ) from error
    return found


def shard_batches(source: Source, shard: Shard, columns: list[str]) -> Iterator[RawBatch]:
    """Yields the batches of `raw_batches` that belong to a shard.

    Args:
      source: what is read.
      shard: of this source.
      columns: names of columns, as for `raw_batches`.

    Raises:
      DataError: the file cannot be read, or is another than the one that was cut.
    """
    path, first_row = source.paths[shard.file], shard.first_row
    try:
        if path.stat().st_size != shard.file_bytes:
            raise DataError(
                f"{path} has another size here than where the campaign runs; give all workers "
                "the same files, nothing was released"
            )
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in _read(file, shard, wanted_columns(source, columns)):
                kept = rows_of_role(source, batch, columns)
                if kept.num_rows:
                    yield RawBatch(first_row, kept)
                    first_row += kept.num_rows
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path} cannot be read from row {first_row} on ({type(error).__name__}); see that "
            "all workers can read it and that it is whole, nothing was released"
        ) from error


def _cuts(metadata: pq.FileMetaData, length: int) -> Iterator[tuple[int, int]]:
    """Where a file's shards start and end: near the bounds of row groups where these are near."""
    bounds = [-(-start // BATCH_ROWS) * BATCH_ROWS for start in _starts(metadata)]
    start, total = 0, metadata.num_rows
    while start < total:
        end = start + length
        near = [one for one in bounds if start < one <= end and one > end - length // 4]
        end = min(near[-1] if near else end, total)
        yield start, end
        start = end


def _starts(metadata: pq.FileMetaData) -> list[int]:
    """First row of every row group."""
    starts = [0]
    for group in range(metadata.num_row_groups - 1):
        starts.append(starts[-1] + metadata.row_group(group).num_rows)
    return starts


def _rows_of_role(source: Source, file: pq.ParquetFile, shard: Shard) -> int:
    if not source.has_split:
        return shard.rows
    role = source.role.value
    return sum(
        int(pc.sum(pc.equal(batch.column("split"), role)).as_py() or 0)
        for batch in _read(file, shard, ["split"])
    )


def _read(file: pq.ParquetFile, shard: Shard, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """A shard's rows in batches of BATCH_ROWS, from the row groups that hold them."""
    starts, end = _starts(file.metadata), shard.start + shard.rows
    ends = [*starts[1:], file.metadata.num_rows]
    groups = [i for i in range(len(starts)) if starts[i] < end and ends[i] > shard.start]
    read = file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=columns)
    return _aligned(read, skip=shard.start - starts[groups[0]], rows=shard.rows)


def _aligned(
    batches: Iterable[pa.RecordBatch], *, skip: int, rows: int
) -> Iterator[pa.RecordBatch]:
    """Cuts batches anew: after `skip` rows, `rows` of them, BATCH_ROWS at a time."""
    held = None
    for batch in batches:
        dropped = min(skip, batch.num_rows)
        skip -= dropped
        more = pa.Table.from_batches([batch.slice(dropped)])
        held = more if held is None else pa.concat_tables([held, more])
        while rows and held.num_rows >= (size := min(BATCH_ROWS, rows)):
            yield held.slice(0, size).combine_chunks().to_batches()[0]
            held = held.slice(size)
            rows -= size
