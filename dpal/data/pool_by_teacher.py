"""A pool written once more, grouped by teacher, so that each teacher reads one range of a file.

Of a pool in any order every teacher would read all of it. Here it is read once: runs of some
tens of MiB are sorted by teacher and laid down, cut at the same teachers. Then one stretch of
teachers after the other is read from all runs, put in order and written out. Records of a teacher
keep the order of the pool. Memory holds a run, or a stretch, three times; or what one teacher
has, where that is more.

Source:
  Sorting more than fits into memory, by sorted runs that are merged: Knuth, The Art of Computer
  Programming, vol. 3, Sec. 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpal.canonical import digest, file_digest
from dpal.data.label_columns import label_tensor, stored_type
from dpal.data.parquet import BATCH_ROWS, reading
from dpal.data.readers import raw_batches, records_of
from dpal.data.sources import Content, Source
from dpal.errors import DataError
from dpal.files.atomic_writes import workspace, write_private_parquet, writing

Numbers = NDArray[np.int64]

RUN_BYTES = 64 * 2**20  # of records as they are stored; also of a stretch, if it can be
_MOST_STRETCHES = 1024
_MADE_OF, _SIZES = b"dpal.made_of", b"dpal.sizes"
_VERSION = 1
_AGAIN = (
    "workers on other machines need the artifacts folder under the same path; if it is damaged, "
    "delete it and start the run again, which writes it anew"
)


def made_of(source: Source, parts_file: Path) -> str:
    """A digest of all that decides what a grouped pool holds.

    Args:
      source: the pool.
      parts_file: says which record is whose.
    """
    return digest(
        {
            "version": _VERSION,
            "files": source.files_digest,
            "parts": file_digest(parts_file),
            "columns": [source.content.value, *source.texts, source.label_column],
            "role": [source.has_split, source.role.value],
            "held_out": None if source.held_out is None else repr(source.held_out),
        }
    )


def write_grouped(
    path: Path, source: Source, parts: Numbers, *, made_of: str, run_bytes: int = RUN_BYTES
) -> None:
    """Writes the records of a pool in the order of their teachers. Private.

    A process that dies leaves no such file, and what it had begun is swept away by the next one.

    Args:
      path: of the new file, for its owner alone.
      source: the labeled pool.
      parts: (rows,) number of each record's teacher.
      made_of: of `made_of`, kept in the file.
      run_bytes: how much is sorted at a time.

    Raises:
      DataError: a file cannot be read, or has other records than were dealt out.
      StorageError: the disk is full or the folder cannot be written.
    """
    sizes = np.bincount(parts).astype(np.int64)
    kept = {_MADE_OF: made_of.encode(), _SIZES: sizes.astype("<i8").tobytes()}
    schema = _schema(source)
    with workspace(path) as folder, writing(path):
        spilled, runs = folder / "runs.arrow", _sorted_runs(source, schema, parts, run_bytes)
        stretches = _spill(spilled, runs, schema, sizes, run_bytes)
        write_private_parquet(
            path, schema.with_metadata(kept), lambda: _by_teacher(spilled, schema, stretches)
        )


class GroupedPool:
    """An open file of `write_grouped`."""

    def __init__(self, path: Path, source: Source, made_of: str) -> None:
        """Opens it.

        Args:
          path: of the file.
          source: the pool that it was made from, which says how records are decoded.
          made_of: of `made_of`.

        Raises:
          DataError: it is missing or damaged, or was made from something else.
        """
        self._path, self._source = path, source
        with reading(path, _AGAIN, DataError.before_release):
            # Read ahead, row groups would stay in memory until the file is closed.
            self._file = pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
            about = self._file.metadata
            kept = about.metadata
            sizes = np.frombuffer(kept[_SIZES], "<i8")
            groups = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
        if kept[_MADE_OF] != made_of.encode() or sizes.sum() != about.num_rows:
            raise DataError.before_release(
                f"{path} was made from other records or other parts than these; {_AGAIN}"
            )
        self._ends = np.cumsum(sizes)
        self._group_ends = np.cumsum(np.array(groups, dtype=np.int64))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def load(self, teacher: int) -> tuple[Tensor, Tensor]:
        """Records of one teacher, in the order of the pool: (n, *input_shape), and labels.

        Raises:
          DataError: the file is damaged, or a record cannot be decoded.
        """
        inputs, labels = [], []
        for content, label in self._batches(teacher):
            inputs.append(records_of(self._source, content, rows=None))
            labels.append(label_tensor(label, self._source.task))
        return torch.cat(inputs), torch.cat(labels)

    def _batches(self, teacher: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        end = int(self._ends[teacher])
        start = int(self._ends[teacher - 1]) if teacher else 0
        first, last = np.searchsorted(self._group_ends, [start, end - 1], side="right")
        skip = start - (int(self._group_ends[first - 1]) if first else 0)
        left = end - start
        with reading(self._path, _AGAIN, DataError.before_release):
            groups = list(range(int(first), int(last) + 1))
            for batch in self._file.iter_batches(BATCH_ROWS, row_groups=groups):
                own = batch.slice(skip, left)
                skip, left = max(0, skip - batch.num_rows), left - own.num_rows
                if own.num_rows:
                    own.validate(full=True)
                    yield own.column(0), own.column(1)


def _schema(source: Source) -> pa.Schema:
    """One for all files of a pool, which may store the same in different types."""
    if source.label_column is None:
        raise DataError.before_release(
            f"{source.name} has no labels; teachers need one for every record"
        )
    texts = pa.struct([(name, pa.large_string()) for name in source.texts])
    kinds = {
        Content.IMAGE: pa.large_binary(),
        Content.FEATURES: pa.large_list(pa.float32()),
        Content.TEXT: texts,
    }
    return pa.schema([("record", kinds[source.content]), ("label", stored_type(source.task))])


def _sorted_runs(
    source: Source, schema: pa.Schema, parts: Numbers, run_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Runs of the pool, each sorted by teacher and, of one teacher, by row."""
    columns = [source.content.value, str(source.label_column)]
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for raw in raw_batches(source, columns):
        own = parts[rows : rows + raw.table.num_rows]
        rows += raw.table.num_rows
        if own.size < raw.table.num_rows:
            break
        with reading(raw.numbers.path):
            columns_of_one_type = zip(raw.table.columns, schema, strict=True)
            arrays = [column.cast(field.type) for column, field in columns_of_one_type]
        held.append(pa.record_batch([*arrays, pa.array(own)], schema=_numbered(schema)))
        size += held[-1].nbytes
        if size >= run_bytes:
            yield _sorted(held)
            held, size = [], 0
    if rows != parts.size:
        raise DataError.before_release(
            f"{source.name} has other records than were dealt out to teachers; put the files back "
            "as they were, or start anew under another name"
        )
    if held:
        yield _sorted(held)


def _numbered(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("teacher", pa.int64()))


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    together = pa.concat_batches(batches)
    batches.clear()
    order = np.argsort(together.column("teacher").to_numpy(), kind="stable")
    return together.take(pa.array(order))


def _spill(
    path: Path, runs: Iterator[pa.RecordBatch], schema: pa.Schema, sizes: Numbers, run_bytes: int
) -> Numbers:
    """Writes runs to a file, each cut at the same teachers.

    Returns:
      (stretches + 1,) the first teacher of each stretch, and the number of teachers.
    """
    edges = np.array([0, sizes.size])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _numbered(schema)) as file:
        for number, run in enumerate(runs):
            if number == 0:
                edges = _edges(sizes, run.nbytes / max(1, run.num_rows), run_bytes)
            cuts = np.searchsorted(run.column("teacher").to_numpy(), edges)
            for begin, end in pairwise(cuts.tolist()):
                file.write_batch(run.slice(begin, end - begin))
    return edges


def _edges(sizes: Numbers, record_bytes: float, run_bytes: int) -> Numbers:
    """Teachers at which stretches of about so many bytes begin, by what records of a run take."""
    rows = np.concatenate([[0], np.cumsum(sizes)])
    stretches = min(_MOST_STRETCHES, sizes.size, 1 + int(rows[-1] * record_bytes / run_bytes))
    wanted = rows[-1] * np.arange(1, stretches) / stretches
    inside = np.searchsorted(rows, wanted)
    return np.unique(np.concatenate([[0], inside, [sizes.size]])).astype(np.int64)


def _by_teacher(path: Path, schema: pa.Schema, edges: Numbers) -> Iterator[pa.RecordBatch]:
    """Records of one teacher after the other, from what was spilled."""
    stretches = edges.size - 1
    with pa.OSFile(str(path), "rb") as spilled:
        file = pa.ipc.open_file(spilled)
        for stretch in range(stretches):
            runs = range(stretch, file.num_record_batches, stretches)
            together = _sorted([file.get_batch(run) for run in runs])
            owners = together.column("teacher").to_numpy()
            teachers = np.arange(edges[stretch], edges[stretch + 1] + 1)
            records = together.select(schema.names)
            for begin, end in pairwise(np.searchsorted(owners, teachers).tolist()):
                if end > begin:
                    yield records.slice(begin, end - begin)
