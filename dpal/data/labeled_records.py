"""The labeled records of a pool: decoded in memory where they fit, else on disk as they came."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpal.data.encoded_records import EncodedRecords, ReadAhead, Rows
from dpal.data.label_columns import label_tensor
from dpal.data.pictures import DECODING_THREADS
from dpal.data.process_share import WHOLE, Share
from dpal.data.readers import PIXELS, apply_extractor, decoded_of, raw_batches, records_of
from dpal.data.sources import Source
from dpal.errors import DataError

CACHE_MIB = 2048
GROUP = "group"  # in a pool's state, where groups are protected

_PART = 64  # records that a thread decodes at a time
_STATE_ROWS = 2048  # rows of a pool's state in memory at a time


class Batch(Protocol):
    """Some records, read when a part of them is asked for; parts are asked for in order."""

    @property
    def shape(self) -> torch.Size:
        """Number of records, and shape of each."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Type of the decoded records."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice) -> Tensor:
        """Decoded records (m, *input_shape)."""
        ...


@dataclass(frozen=True, eq=False)
class Chosen:
    """Some records of a tensor; a large batch of them is never copied whole."""

    records: Tensor
    rows: Rows

    @property
    def shape(self) -> torch.Size:
        """Number of records, and shape of each."""
        return torch.Size((len(self), *self.records.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        """Type of the records."""
        return self.records.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> Tensor:
        return self.records[torch.from_numpy(self.rows[part])]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabeledSet:
    """The labeled records of a pool: as many as labels were bought.

    Attributes:
      inputs: (n, *input_shape) records: uint8 or uint16 pixels, float32 features or int32 tokens.
      labels: (n,) int64 class numbers, or (n, labels) int8 zeros and ones.
      cohorts: (n,) int16 phase in which each record was labeled.
      participation: (n,) factor on each record's sample rates; None is 1 for all.
      share: whose they are; all of the pool's, or those of one process among several.
      owners: (n,) the group of each record, where groups are protected: row of its first record
        in the pool.
    """

    inputs: Tensor | EncodedRecords
    labels: Tensor
    cohorts: NDArray[np.int16]
    participation: NDArray[np.float64] | None = None
    share: Share = WHOLE
    owners: NDArray[np.int64] | None = None

    def batch(self, rows: Rows) -> Batch:
        """The records of a batch by their numbers, read part by part."""
        if isinstance(self.inputs, EncodedRecords):
            return self.inputs.batch(rows)
        return Chosen(self.inputs, rows)

    def batches(self, drawn: Iterable[Rows], *, part: int) -> Iterator[tuple[Rows, Batch]]:
        """Yields batches; decoding starts on the next one before the present one is worked on.

        Args:
          drawn: row numbers of each batch. One batch more is drawn than is yielded; who is
            in it is nowhere to be seen until it is.
          part: records that will be asked for first.
        """
        ready: tuple[Rows, Batch] | None = None
        for rows in drawn:
            batch = self.batch(rows)
            if isinstance(batch, ReadAhead):
                batch.prepare(part)
            if ready is not None:
                yield ready
            ready = (rows, batch)
        if ready is not None:
            yield ready

    def close(self) -> None:
        """Gives the disk space of encoded records back."""
        if isinstance(self.inputs, EncodedRecords):
            self.inputs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def load_labeled(
    source: Source,
    state: Path,
    *,
    participation: Callable[[int], float] = lambda block: 1.0,
    cache_mib: int = CACHE_MIB,
    scratch: Path | None = None,
    workers: int = DECODING_THREADS,
    share: Share = WHOLE,
) -> LabeledSet:
    """Loads the labeled records of a pool; the others are never decoded.

    Memory: 16 bytes a label, and the decoded records if they fit.

    Args:
      source: the pool.
      state: who is labeled.
      participation: factor on the sample rates of a block's records.
      cache_mib: what decoded records may take; more of them stay encoded, on disk.
      scratch: folder for those, as private as the pool; None keeps all in memory.
      workers: threads that decode.
      share: whose records are loaded.

    Raises:
      DataError: a record cannot be read, or the pool is not the one of its state.
      StorageError: there is no room in `scratch`.
    """
    return load_labeled_rows(
        source,
        owned_rows(labeled_rows(state), share),
        participation=participation,
        cache_mib=cache_mib,
        scratch=scratch,
        workers=workers,
        share=share,
    )


def owned_rows(table: pa.Table, share: Share) -> pa.Table:
    """Those of the labeled rows that a share owns; a group's records have one owner, too."""
    return table.take(share.of(table.column(_owned_by(table)).to_numpy()))


def load_labeled_rows(
    source: Source,
    table: pa.Table,
    *,
    participation: Callable[[int], float] = lambda block: 1.0,
    cache_mib: int = CACHE_MIB,
    scratch: Path | None = None,
    workers: int = DECODING_THREADS,
    share: Share = WHOLE,
) -> LabeledSet:
    """Loads the records of labeled rows, as `load_labeled` does those of a state.

    Args:
      source: the pool.
      table: as `labeled_rows` and `owned_rows` give it.
      participation: factor on the sample rates of a block's records.
      cache_mib: what decoded records may take; more of them stay encoded, on disk.
      scratch: folder for those, as private as the pool; None keeps all in memory.
      workers: threads that decode.
      share: whose rows these are.

    Raises:
      DataError: a record cannot be read, a row is not the share's, or the pool is another one.
      StorageError: there is no room in `scratch`.
    """
    grouped = GROUP in table.column_names
    if len(share.of(table.column(_owned_by(table)).to_numpy())) != table.num_rows:
        raise DataError(f"rows came that rank {share.rank} of {share.processes} does not own")
    rows = table.column("row").to_numpy()
    first = next(iter(raw_batches(source, [source.content.value]))).table.column(0)
    like = records_of(source, first.slice(0, 1), rows=None)
    needed = len(rows) * math.prod(like.shape) * like.element_size()
    inputs: Tensor | EncodedRecords
    if scratch is None or needed <= cache_mib * 2**20:
        inputs = _decoded(source, rows, like, workers)
    else:
        inputs = _encoded(source, rows, like, first.type, scratch, workers)
    return LabeledSet(
        inputs=inputs,
        labels=label_tensor(table.column("label"), source.task),
        cohorts=np.array(table.column("cohort"), dtype=np.int16),
        participation=_by_block(np.array(table.column("block"), dtype=np.int32), participation),
        share=share,
        owners=table.column(GROUP).to_numpy() if grouped else None,
    )


def _owned_by(table: pa.Table) -> str:
    return GROUP if GROUP in table.column_names else "row"


def labeled_rows(state: Path) -> pa.Table:
    """The rows of the pool that are labeled, with their cohort, label, block, and group, if any."""
    batches, first = [], 0
    with pq.ParquetFile(state) as file:
        columns = [name for name in file.schema_arrow.names if name != "id"]
        for batch in file.iter_batches(_STATE_ROWS, columns=columns):
            labeled = np.flatnonzero(np.asarray(batch.column("cohort")) >= 0)
            kept = pa.Table.from_batches([batch]).take(pa.array(labeled))
            batches.append(kept.append_column("row", pa.array(first + labeled)))
            first += batch.num_rows
    return pa.concat_tables(batches)


def _columns(source: Source, rows: NDArray[np.int64]) -> Iterator[tuple[int, pa.Array]]:
    """Yields the given rows batch by batch: how many came before, and their values."""
    done = 0
    for batch in raw_batches(source, [source.content.value]):
        stop = int(np.searchsorted(rows, batch.first_row + batch.table.num_rows))
        if stop > done:
            here = pa.array(rows[done:stop] - batch.first_row)
            yield done, batch.table.column(0).take(here)
            done = stop
    if done < len(rows):
        raise DataError(
            f"{source.name} has fewer rows than when the campaign started; restore the file"
        )


def _decoded(source: Source, rows: NDArray[np.int64], like: Tensor, workers: int) -> Tensor:
    """All records in one tensor, into which the threads write side by side."""
    whole = torch.empty((len(rows), *like.shape[1:]), dtype=like.dtype)
    with ThreadPoolExecutor(workers) as threads:
        for done, column in _columns(source, rows):

            def place(start: int, done: int = done, column: pa.Array = column) -> None:
                part = column.slice(start, _PART)
                target = slice(done + start, done + start + len(part))
                whole[target] = _like_others(source, part, like)

            list(threads.map(place, range(0, len(column), _PART)))
    return whole


def _encoded(
    source: Source,
    rows: NDArray[np.int64],
    like: Tensor,
    kind: pa.DataType,
    scratch: Path,
    workers: int,
) -> EncodedRecords:
    """Images as their files; what is no smaller encoded, or slow to make, as it is fed."""
    columns = _columns(source, rows)
    if like.dtype in PIXELS:

        def decoder(values: pa.Array) -> Tensor:
            return _like_others(source, values, like)

        stored: Iterator[pa.Array] = (column for _, column in columns)
    else:
        kind = pa.binary(math.prod(like.shape) * like.element_size())

        def decoder(values: pa.Array) -> Tensor:
            flat = np.frombuffer(values.buffers()[1], dtype=like.numpy().dtype).copy()
            return torch.from_numpy(flat).reshape(len(values), *like.shape[1:])

        stored = (_as_bytes(_like_others(source, column, like), kind) for _, column in columns)
    return EncodedRecords(
        stored,
        kind,
        decoder=decoder,
        count=len(rows),
        like=like,
        scratch=scratch,
        workers=workers,
    )


def _as_bytes(records: Tensor, kind: pa.DataType) -> pa.Array:
    content = pa.py_buffer(records.contiguous().numpy().tobytes())
    return pa.Array.from_buffers(kind, len(records), [None, content])


def _like_others(source: Source, column: pa.Array, like: Tensor) -> Tensor:
    """Decodes labeled records. A message does not point at one: who is labeled is private."""
    records, as_decoded = None, source.extractor is None and like.dtype in PIXELS
    shape = tuple(like.shape[1:]) if as_decoded else None
    with suppress(DataError):
        records = apply_extractor(source, decoded_of(source, column, rows=None, shape=shape))
    if records is None or records.shape[1:] != like.shape[1:]:
        # Raised out here, so that no traceback shows the first error and its row.
        raise DataError(
            f"{source.name} has a record that cannot be read or differs in shape from the first, "
            "and had none when the campaign was planned; restore the file, or see which row: "
            "dpal plan checks all of them"
        )
    return records


def _by_block(blocks: NDArray[np.int32], factor: Callable[[int], float]) -> NDArray[np.float64]:
    numbers, block_positions = np.unique(blocks, return_inverse=True)
    return np.array([factor(int(number)) for number in numbers], dtype=np.float64)[block_positions]
