"""A Parquet file one row group at a time: each stretch of its bytes is read once, and known by it.

Whoever reads a pool for a plan reads all of it, and keeps a digest of every column in every row
group. Later readers of a file that is not certainly in the same state compare the bytes that they
read, so that one which changed under a campaign is refused where it is read, by the name of the
row group, and never read for that alone.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpal.errors import DataChanged

if TYPE_CHECKING:  # a served model reads no file
    from dpal.files.stored_objects import Place

_TICK_NS = 10**9  # longer than any clock of files stands still
_PIECE = 2**23  # bytes that are read at a time of what is only hashed


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownFile:
    """What a file held when all of it was read. Private, as a digest confirms a guess.

    Attributes:
      sha256: of its bytes, in hexadecimal.
      metadata: its footer, by which it is read from then on.
      columns: SHA-256 of each column's bytes, by row group and number of the column.
      state: in which the file was then, as far as its system or store tells; empty where nothing
        shows that it is still in that one.
    """

    sha256: str
    metadata: pq.FileMetaData
    columns: Mapping[tuple[int, int], bytes]
    state: str = ""

    def row_groups(self) -> list[str]:
        """A digest of each row group's columns, in hexadecimal."""
        leaves = range(self.metadata.num_columns)
        return [
            sha256(b"".join(self.columns[group, leaf] for leaf in leaves)).hexdigest()
            for group in range(self.metadata.num_row_groups)
        ]


@contextmanager
def opened(place: Place, known: KnownFile | None = None) -> Iterator[RowGroups]:
    """Opens a file for as long as a block lasts.

    Args:
      place: of the file.
      known: what it must hold; None for a file that nobody has read before.
    """
    with place.open("rb") as stream:
        yield RowGroups(place, stream, known)


class RowGroups(io.RawIOBase):
    """A file of which the wanted columns of one row group are in memory, as they lie in it.

    To Arrow it is a file. What Arrow asks for is in memory already.
    """

    def __init__(self, place: Place, stream: Any, known: KnownFile | None = None) -> None:
        super().__init__()
        self._place, self._stream, self._known = place, stream, known
        self._opened_ns = time.time_ns()
        self._size = int(stream.seek(0, io.SEEK_END))
        self._position, self._held = 0, list[tuple[int, memoryview]]()
        self.metadata = known.metadata if known else self._footer()

    def rows_before(self, group: int) -> int:
        """First row of a row group in the file."""
        return sum(self.metadata.row_group(before).num_rows for before in range(group))

    def leaves(self, columns: Sequence[str]) -> list[int]:
        """Numbers of the stored columns behind columns of the schema."""
        paths = [self.metadata.schema.column(i).path for i in range(self.metadata.num_columns)]
        return [
            leaf
            for leaf, path in enumerate(paths)
            if any(path == wanted or path.startswith(f"{wanted}.") for wanted in columns)
        ]

    def fetch(self, group: int, leaves: Sequence[int]) -> dict[int, memoryview]:
        """Reads columns of a row group, and forgets those of another.

        Raises:
          DataChanged: they are not what they were when the file was known.
          OSError: the file ends before they do.
        """
        self._held = []
        contents = {leaf: self._read(*chunk(self.metadata, group, leaf)) for leaf in leaves}
        if self._known is not None and not self._is_as_known():
            for leaf, content in contents.items():
                if sha256(content).digest() != self._known.columns[group, leaf]:
                    raise changed_row_group(self._place, self.metadata, group)
        for leaf, content in contents.items():
            self._held.append((chunk(self.metadata, group, leaf)[0], content))
        return contents

    def pieces(self, start: int, end: int) -> Iterator[memoryview]:
        """Reads a stretch of the file that nobody wants but to hash it."""
        for position in range(start, end, _PIECE):
            yield self._read(position, min(_PIECE, end - position))

    @property
    def state(self) -> str:
        """What tells the file from itself after a change; empty where nothing does for certain."""
        try:
            about = os.fstat(self._stream.fileno())
        except OSError:  # io.UnsupportedOperation: it lies in a store
            return str(getattr(self._stream, "state", ""))
        if self._opened_ns - about.st_mtime_ns < _TICK_NS:
            return ""  # another change might carry the same time
        times = f"{about.st_mtime_ns}-{about.st_ctime_ns}"
        return f"{about.st_dev}-{about.st_ino}-{about.st_size}-{times}"

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def readable(self) -> bool:  # noqa: D102
        return True

    def seekable(self) -> bool:  # noqa: D102
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:  # noqa: D102
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:  # noqa: D102
        return self._position

    def read(self, size: int = -1, /) -> Any:  # noqa: D102
        size = self._size - self._position if size < 0 else size
        position, self._position = self._position, self._position + size
        for start, content in self._held:
            first = position - start
            if first >= 0 and first + size <= len(content):
                return content[first : first + size]
        self._stream.seek(position)
        return self._stream.read(max(0, min(size, self._size - position)))

    def _is_as_known(self) -> bool:
        """Whether the file is certainly in the state that it was in when it was known."""
        return bool(self._known and self._known.state and self._known.state == self.state)

    def _footer(self) -> pq.FileMetaData:
        return pq.read_metadata(self)

    def _read(self, start: int, length: int) -> memoryview:
        # In Arrow's memory, which is used again, and not handed back to the system each time.
        content = memoryview(pa.allocate_buffer(length)).cast("B")
        self._stream.seek(start)
        read = 0
        while read < length and (more := self._stream.readinto(content[read:])):
            read += more
        if read < length:
            raise OSError(f"the file ends {length - read} bytes early")
        return content


def chunk(metadata: pq.FileMetaData, group: int, leaf: int) -> tuple[int, int]:
    """Where the bytes of a column in a row group start, and how many they are."""
    column = metadata.row_group(group).column(leaf)
    start = int(column.data_page_offset)
    if column.has_dictionary_page and column.dictionary_page_offset:
        start = min(start, int(column.dictionary_page_offset))
    return start, int(column.total_compressed_size)


def changed_row_group(place: Place, metadata: pq.FileMetaData, group: int) -> DataChanged:
    """What to raise where a row group is not what it was when its file was inspected."""
    first = sum(metadata.row_group(before).num_rows for before in range(group))
    last = first + metadata.row_group(group).num_rows - 1
    return DataChanged(str(place), (group,), f"{first:,} to {last:,}")
