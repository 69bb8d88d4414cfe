"""Records that stay on disk as they came, and are decoded when a batch asks for them.

The file has no name: it is open and in no folder, so that it is gone with the process that
wrote it, however that ends, and nobody else can open it.
"""

from __future__ import annotations

import mmap
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpal.files.atomic_writes import make_private, writing

Rows = NDArray[np.intp]

Decoder = Callable[[pa.Array], Tensor]  # turns stored values into records


class EncodedRecords:
    """Records in a memory-mapped Arrow file without a name, decoded by threads.

    Attributes:
      shape: (n, *input_shape).
      dtype: of the decoded records.
    """

    def __init__(
        self,
        stored: Iterable[pa.Array],
        kind: pa.DataType,
        *,
        decoder: Decoder,
        count: int,
        like: Tensor,
        scratch: Path,
        workers: int,
    ) -> None:
        """Writes the records to disk, a batch at a time.

        Args:
          stored: their stored values, batch by batch.
          kind: type of the stored values.
          decoder: turns such values into records.
          count: n, how many there are.
          like: (any number of records,), for shape and type.
          scratch: folder of the nameless file; made for its owner alone if it is missing.
          workers: threads that decode.

        Raises:
          StorageError: the disk is full or the folder cannot be written.
        """
        self.shape = torch.Size((count, *like.shape[1:]))
        self.dtype = like.dtype
        self._kind, self._decoder, self._workers = kind, decoder, workers
        self._stored = _on_disk(stored, kind, scratch)
        self._starts = [0, *accumulate(len(array) for array in self._stored)]
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="decoding")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Decodes records by their numbers, a mask over all, or a slice."""
        return self.begin(np.arange(len(self))[_as_index(rows)])()

    def batch(self, rows: Rows) -> ReadAhead:
        """Some records, of which none is decoded before it is asked for."""
        return ReadAhead(self, rows)

    def begin(self, rows: Rows) -> Callable[[], Tensor]:
        """Starts decoding; what is returned waits for it and gives the records in order."""
        shares = [share for share in np.array_split(rows, self._workers) if share.size]
        futures = [self._threads.submit(self._decode, share) for share in shares]
        return lambda: self._together(futures)

    def close(self) -> None:
        """Gives the disk space back. Decoding what is under way comes to its end."""
        self._threads.shutdown(cancel_futures=True)
        self._stored = []

    def _together(self, futures: list[Future[Tensor]]) -> Tensor:
        parts = [future.result() for future in futures]
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts) if parts else torch.empty((0, *self.shape[1:]), dtype=self.dtype)

    def _decode(self, rows: Rows) -> Tensor:
        return self._decoder(pa.array([self._value(int(row)) for row in rows], self._kind))

    def _value(self, row: int) -> bytes:
        index = bisect_right(self._starts, row) - 1
        value: bytes = self._stored[index][row - self._starts[index]].as_py()
        return value


class ReadAhead:
    """Some encoded records; while one part of them is worked on, the next one is decoded.

    At most one part is waiting, of the size of the part before it.
    """

    def __init__(self, records: EncodedRecords, rows: Rows) -> None:
        self._records, self._rows = records, rows
        self._waiting: tuple[int, int, Callable[[], Tensor]] | None = None

    @property
    def shape(self) -> torch.Size:
        """Number of records, and shape of each."""
        return torch.Size((len(self), *self._records.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        """Type of the decoded records."""
        return self._records.dtype

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice) -> Tensor:
        """Gives a part, and starts on the one that follows it."""
        start, stop, step = part.indices(len(self))
        if step != 1:
            return self._records.begin(self._rows[part])()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting[:2] == (start, stop):
            result = waiting[2]
        else:
            result = self._records.begin(self._rows[start:stop])
        self._begin(stop, stop + max(stop - start, 0))
        return result()

    def prepare(self, size: int) -> None:
        """Starts on the first part, of the given size."""
        self._begin(0, size)

    def _begin(self, start: int, stop: int) -> None:
        stop = min(stop, len(self))
        if start < stop:
            self._waiting = (start, stop, self._records.begin(self._rows[start:stop]))


def _as_index(rows: Tensor | slice) -> slice | NDArray[np.generic]:
    return rows if isinstance(rows, slice) else rows.cpu().numpy()


def _on_disk(values: Iterable[pa.Array], kind: pa.DataType, scratch: Path) -> list[pa.Array]:
    """Writes arrays of one type, and gives them back as views of the file."""
    schema = pa.schema([("record", kind)])
    with writing(scratch):
        make_private(scratch)
        with tempfile.TemporaryFile(dir=scratch) as file:
            with pa.ipc.new_file(file, schema) as writer:
                for array in values:
                    writer.write_batch(pa.record_batch([array.cast(kind)], schema=schema))
            file.flush()
            # The mapping outlives the file's descriptor, and takes it down when it goes.
            return list(_mapped(file))


def _mapped(file: IO[bytes]) -> Iterator[pa.Array]:
    view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    reader = pa.ipc.open_file(pa.py_buffer(view))
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index).column(0)
