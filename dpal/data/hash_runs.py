"""Rows that have a hash each, written as they come and read in the order of their hashes.

Keyed hashes are spread evenly over all numbers, so that a stretch of numbers has a known share of
the rows: sorted runs are cut at the same numbers, and one stretch after the other is read from
all of them. Memory holds a run and a stretch, however many rows there are. What does not fit
lies in a file without a name, which is gone with the process, however that ends.

Source:
  Sorting by distribution: Knuth, The Art of Computer Programming, vol. 3, Sec. 5.2.5 and 5.4.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpal.files.atomic_writes import make_private, writing

Rows = NDArray[Any]  # structured, with the fields of WIDE, or of NARROW

WIDE = np.dtype([("high", "<u8"), ("low", "<u8")])
NARROW = np.dtype([("high", "<u8")])
IN_MEMORY = 2**25  # bytes of one array, or of runs, that need no file
SHARED = Path(tempfile.gettempdir())  # for files without a name, under salts that are not kept
_STRETCH = 1 << 20  # rows, about


def array_for(folder: Path, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array to be filled: in memory, or, if it is large, mapped from a file without a name.

    Args:
      folder: where such a file is made, as private as what will be in it.
      shape: of the array.
      dtype: of the array.

    Raises:
      StorageError: there is no room in the folder.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size <= IN_MEMORY:
        return np.zeros(shape, dtype)
    with writing(folder):
        make_private(folder)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is said here, once for all
            return np.memmap(file, dtype, "r+", shape=shape)


class RowsInOrder:
    """Rows of bytes in the order in which they came: in memory as long as they are few."""

    def __init__(self, folder: Path, width: int) -> None:
        """Begins without rows.

        Args:
          folder: for a file without a name, where memory has no room for them; private.
          width: bytes of a row.
        """
        self._folder, self._width = folder, width
        self._held: list[NDArray[np.uint8]] = []
        self._file: IO[bytes] | None = None
        self._size = 0

    def add(self, rows: NDArray[np.uint8]) -> None:
        """Adds rows (n, width).

        Raises:
          StorageError: there is no room in the folder.
        """
        self._held.append(rows)
        self._size += len(rows)
        if sum(own.nbytes for own in self._held) > IN_MEMORY:
            self._lay_down()

    def all(self) -> NDArray[np.uint8]:
        """All of them, (n, width).

        Raises:
          StorageError: there is no room in the folder.
        """
        shape = (self._size, self._width)
        if self._file is None:
            return np.concatenate([np.zeros((0, self._width), np.uint8), *self._held])
        self._lay_down()
        with writing(self._folder), self._file as file:
            return np.memmap(file, np.uint8, "r", shape=shape)

    def _lay_down(self) -> None:
        with writing(self._folder):
            make_private(self._folder)
            self._file = self._file or tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
            for own in self._held:
                self._file.write(own.tobytes())
            self._file.flush()
        self._held = []


class HashRuns:
    """Sorted runs of rows."""

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        """Begins without rows.

        Args:
          folder: where runs lie that memory has no room for; private.
          dtype: of a row: the fields of WIDE or of NARROW, and others.
        """
        self._folder, self._dtype = folder, dtype
        self._hash = [name for name in WIDE.names or () if name in (dtype.names or ())]
        self._fresh: list[Rows] = []  # of the next run, as they came
        self._runs: list[Rows] = []
        self._mapped: list[mmap.mmap] = []
        self._held = 0  # bytes of runs in memory
        self.size = 0

    def add(self, rows: Rows) -> None:
        """Adds rows, after all that were added before.

        Raises:
          StorageError: there is no room in the folder.
        """
        if not rows.size:
            return
        self.size += rows.size
        self._fresh.append(rows)
        if 2 * sum(own.nbytes for own in self._fresh) >= IN_MEMORY:
            self._end_run()

    def in_order(self) -> Iterator[Rows]:
        """Yields stretches of all rows, by their hashes; equal ones are together, as they came.

        Raises:
          StorageError: there is no room in the folder.
        """
        self._end_run()
        stretches = 1 + self.size // _STRETCH
        edges = [(number << 64) // stretches for number in range(1, stretches)]
        cuts = []
        for run in self._runs:
            found = np.searchsorted(run["high"], np.array(edges, np.uint64))
            cuts.append([0, *found.tolist(), run.size])
            self._hand_back()
        for stretch in range(stretches):
            parts = [
                run[own[stretch] : own[stretch + 1]]
                for run, own in zip(self._runs, cuts, strict=True)
            ]
            if any(part.size for part in parts):
                rows = np.concatenate(parts)
                del parts
                self._hand_back()
                yield _sorted(rows, self._hash)

    def _hand_back(self) -> None:
        """What was read of files is no longer this process's memory."""
        for mapped in self._mapped:
            mapped.madvise(mmap.MADV_DONTNEED)

    def _end_run(self) -> None:
        """Sorts what came since the last run, and lays it down where memory has no room for it."""
        if not self._fresh:
            return
        run = np.concatenate(self._fresh)
        self._fresh = []
        run = _sorted(run, ["high"])
        if self._held + run.nbytes <= IN_MEMORY:
            self._held += run.nbytes
            self._runs.append(run)
            return
        with writing(self._folder):
            make_private(self._folder)
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.write(run.view(np.uint8).data)
                file.flush()
                self._mapped.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._runs.append(np.frombuffer(self._mapped[-1], self._dtype))


def _sorted(rows: Rows, names: Sequence[str]) -> Rows:
    """Rows in the order of some fields, the first of them first; equal ones as they come."""
    if rows.dtype == NARROW:
        return np.sort(rows["high"]).view(NARROW)
    if len(names) == 1:
        return rows[np.argsort(rows[names[0]], kind="stable")]
    return rows[np.lexsort([rows[name] for name in reversed(names)])]


def first_of_equal(rows: Rows) -> NDArray[np.bool_]:
    """Which rows of a stretch are the first of their hash, (n,)."""
    first = np.ones(rows.size, bool)
    first[1:] = (rows["high"][1:] != rows["high"][:-1]) | (rows["low"][1:] != rows["low"][:-1])
    return first


def with_hashes(hashes: Rows, **columns: NDArray[Any]) -> Rows:
    """Rows of hashes (n,) and of other columns (n,) each."""
    dtype = np.dtype([*WIDE.descr, *((name, own.dtype.str) for name, own in columns.items())])
    rows = np.empty(hashes.size, dtype)
    for name in ("high", "low"):
        rows[name] = hashes[name]
    for name, own in columns.items():
        rows[name] = own
    return rows


def hashes_of_names(names: pa.Array) -> NDArray[np.uint64]:
    """Hashes (n,) of ids, by which this process alone tells them apart."""
    told = names.to_pylist()
    return np.fromiter(map(hash, told), np.int64, len(told)).view(np.uint64)
