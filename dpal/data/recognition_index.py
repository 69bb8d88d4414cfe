"""Index files: what is kept of a data set's records, so that they are recognised later.

For each record an index file holds keyed hashes of its owner, of its content as it is stored and
as a model sees it, the blocks of both, and a sketch of the content, encrypted. A file of this
version (3) is an Arrow file whose hashes are sorted, so that they are looked up where they lie,
in pages that the system maps and takes back: memory does not grow with a data set.

Files of version 2 hold the same, unsorted and in 64 bits; of version 1 the owner, the content as
it is stored and one block. They are sorted when they are opened.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from dpal.data.hash_runs import (
    WIDE,
    HashRuns,
    Rows,
    RowsInOrder,
    array_for,
    first_of_equal,
    with_hashes,
)
from dpal.data.likeness import Sketches
from dpal.errors import DataError
from dpal.files.atomic_writes import atomic_write

Hashes = Rows  # (n,) of WIDE
Blocks = NDArray[np.int32]

UNKNOWN = -1
FORMAT = 3  # of the index files that are written; ledgers say it of each
WIDE_BITS, NARROW_BITS = 128, 64

_EARLIEST = ["owner", "content", "block"]  # contents as they are stored
_EARLIER = ["owner", "stored", "content", "block", "content_block"]
_KEYS = ("owner", "stored", "content")
_WAY, _NONCE, _RANDOM = b"dpal.likeness", b"dpal.nonce", b"dpal.salt"
_ROWS_AT_ONCE = 1 << 16
_CIPHER_BLOCK = 64  # bytes


@dataclass(frozen=True, eq=False)
class FirstBlocks:
    """Sorted hashes of one index file, in memory or on disk, and the block of each.

    Attributes:
      high: (n,) upper halves, ascending.
      low: (n,) lower halves.
      blocks: (n,) of equal hashes the first one counts.
    """

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    blocks: Blocks

    def find(self, wanted: Hashes) -> Blocks:
        """Block of each hash, UNKNOWN where it is not there. (m,)."""
        found = np.full(wanted.size, UNKNOWN, np.int32)
        # In their order, so that neighbours are asked of the same pages.
        asked = np.argsort(wanted["high"], kind="stable")
        places = np.searchsorted(self.high, wanted["high"][asked], side="left")
        while asked.size:
            there = places < self.high.size
            asked, places = asked[there], places[there]
            there = self.high[places] == wanted["high"][asked]
            asked, places = asked[there], places[there]
            same = self.low[places] == wanted["low"][asked]
            found[asked[same]] = self.blocks[places[same]]
            # Of two that share an upper half the other one may be meant.
            asked, places = asked[~same], places[~same] + 1
        return found


@dataclass(frozen=True, eq=False)
class KnownSketches:
    """Sketches of one index file, encrypted, in the order in which records came.

    Attributes:
      hidden: (n, width) bytes.
      distinct: (n,) whether a record is the first of its content; the sketch of another says
        nothing more.
      blocks: (n,) of contents.
      key: 32 bytes.
      nonce: 16 bytes.
    """

    hidden: Sketches
    distinct: NDArray[np.bool_]
    blocks: Blocks
    key: bytes
    nonce: bytes

    def read(self, begin: int, end: int) -> Sketches:
        """Some of them, (m, width), all zero where the content came before."""
        width = self.hidden.shape[1]
        skip = begin * width % _CIPHER_BLOCK
        cipher = _cipher(self.key, self.nonce, begin * width // _CIPHER_BLOCK)
        cipher.update(bytes(skip))
        plain = cipher.update(np.ascontiguousarray(self.hidden[begin:end]).data)
        sketches = np.frombuffer(plain, np.uint8).reshape(-1, width)
        return np.where(self.distinct[begin:end, None], sketches, np.uint8(0))


@dataclass(frozen=True, eq=False, kw_only=True)
class IndexPart:
    """One index file that is open for looking records up.

    Attributes:
      owners: blocks of owners.
      stored: of contents as they were stored.
      contents: of contents as a model sees them; nothing in files of version 1.
      way: how contents were read and sketches made; empty in files of version 1.
      sketches: of contents; nothing in files of version 1.
    """

    owners: FirstBlocks
    stored: FirstBlocks
    contents: FirstBlocks
    way: str
    sketches: KnownSketches


class IndexPartMaker:
    """Gathers records for one index file, in the order in which they came."""

    def __init__(self, folder: Path, *, way: str, width: int, salt: bytes) -> None:
        """Begins without records.

        Args:
          folder: for what does not fit into memory; private.
          way: how contents were read and sketches made.
          width: bytes of a sketch.
          salt: under which sketches are encrypted.
        """
        self._folder, self._way, self._width = folder, way, width
        self._key, self._nonce = _sketch_key(salt), bytes(4) + secrets.token_bytes(12)
        self._cipher = _cipher(self._key, self._nonce, 0)
        kind = np.dtype([*WIDE.descr, ("place", "<i8"), ("row", "<i8"), ("block", "<i4")])
        self._runs = {name: HashRuns(folder, kind) for name in _KEYS}
        self._hidden = RowsInOrder(folder, width)
        self.size = 0

    def add(
        self,
        owners: Hashes,
        stored: Hashes,
        contents: Hashes,
        sketches: Sketches,
        *,
        rows: NDArray[np.int64],
        content_blocks: Blocks,
    ) -> None:
        """Adds some records.

        Args:
          owners: (n,) hashes; as are `stored` and `contents`.
          stored: of contents as they are stored.
          contents: of contents as a model sees them.
          sketches: (n, width)
          rows: (n,) by which `write` is told owners' blocks.
          content_blocks: (n,) of contents; UNKNOWN for that of the owner.

        Raises:
          StorageError: there is no room in the folder.
        """
        places = np.arange(self.size, self.size + rows.size)
        for name, hashes in zip(_KEYS, (owners, stored, contents), strict=True):
            told = with_hashes(hashes, place=places, row=rows, block=content_blocks)
            self._runs[name].add(told)
        hidden = np.frombuffer(self._cipher.update(sketches.tobytes()), np.uint8)
        self._hidden.add(hidden.reshape(rows.size, self._width))
        self.size += rows.size

    def part(self, owner_blocks: Blocks) -> IndexPart:
        """The records, sorted.

        Args:
          owner_blocks: by row, as `add` was told rows.

        Raises:
          StorageError: there is no room in the folder.
        """
        distinct = array_for(self._folder, (self.size,), np.bool_)
        sketch_blocks = array_for(self._folder, (self.size,), np.int32)
        made = {}
        for name, runs in self._runs.items():
            high, low = (array_for(self._folder, (self.size,), np.uint64) for _ in range(2))
            blocks, start = array_for(self._folder, (self.size,), np.int32), 0
            for rows in runs.in_order():
                here = slice(start, start + rows.size)
                own = owner_blocks[rows["row"]]
                contents = np.where(rows["block"] == UNKNOWN, own, rows["block"])
                high[here], low[here] = rows["high"], rows["low"]
                blocks[here] = own if name == "owner" else contents
                if name == "content":
                    distinct[rows["place"]] = first_of_equal(rows)
                    sketch_blocks[rows["place"]] = contents
                start += rows.size
            made[name] = FirstBlocks(high, low, blocks)
        return IndexPart(
            owners=made["owner"],
            stored=made["stored"],
            contents=made["content"],
            way=self._way,
            sketches=KnownSketches(
                self._hidden.all(), distinct, sketch_blocks, self._key, self._nonce
            ),
        )


def write_index(part: IndexPart, path: Path) -> None:
    """Writes an index file of this version.

    The file carries 32 random bytes, so that its digest says nothing without it.

    Raises:
      StorageError: the disk is full or the folder cannot be written.
    """
    sketches = part.sketches
    width = sketches.hidden.shape[1]
    columns: dict[str, pa.Array] = {}
    for name, own in zip(_KEYS, (part.owners, part.stored, part.contents), strict=True):
        columns |= {
            f"{name}_high": _column(own.high, pa.uint64()),
            f"{name}_low": _column(own.low, pa.uint64()),
            f"{name}_block": _column(own.blocks, pa.int32()),
        }
    columns["sketch"] = _column(sketches.hidden, pa.binary(width))
    columns["sketch_block"] = _column(sketches.blocks, pa.int32())
    columns["distinct"] = _column(sketches.distinct.view(np.uint8), pa.uint8())
    kept = {_WAY: part.way.encode(), _NONCE: sketches.nonce, _RANDOM: secrets.token_bytes(32)}
    batch = pa.record_batch(columns).replace_schema_metadata(kept)
    with (
        atomic_write(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema) as file,
    ):
        file.write_batch(batch)


def open_index(path: Path, *, salt: bytes, folder: Path) -> IndexPart:
    """Opens an index file of this or an earlier version, whose digest was compared.

    Args:
      path: of the file.
      salt: under which it was written.
      folder: for what does not fit into memory; private.

    Raises:
      DataError: it is missing or damaged.
    """
    try:
        if path.suffix == ".parquet":
            return _earlier(path, salt, folder)
        with pa.memory_map(str(path)) as source:
            batch = pa.ipc.open_file(source).get_batch(0)
        return _mapped(batch, salt)
    except (OSError, pa.ArrowException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError.before_release(
            f"{path} is missing or damaged; without it records of the data set cannot be "
            "recognised, restore it"
        ) from error


def _mapped(batch: pa.RecordBatch, salt: bytes) -> IndexPart:
    def numbers(name: str, dtype: Any) -> NDArray[Any]:
        return np.frombuffer(batch.column(name).buffers()[1], dtype)[: batch.num_rows]

    keys = {
        name: FirstBlocks(
            numbers(f"{name}_high", "<u8"),
            numbers(f"{name}_low", "<u8"),
            numbers(f"{name}_block", "<i4"),
        )
        for name in _KEYS
    }
    kept, width = batch.schema.metadata, batch.schema.field("sketch").type.byte_width
    hidden = np.frombuffer(batch.column("sketch").buffers()[1], np.uint8)
    sketches = KnownSketches(
        hidden[: batch.num_rows * width].reshape(-1, width),
        numbers("distinct", np.bool_),
        numbers("sketch_block", "<i4"),
        _sketch_key(salt),
        kept[_NONCE],
    )
    return IndexPart(
        owners=keys["owner"],
        stored=keys["stored"],
        contents=keys["content"],
        way=kept[_WAY].decode(),
        sketches=sketches,
    )


def _earlier(path: Path, salt: bytes, folder: Path) -> IndexPart:
    """Sorts a file of an earlier version, of which sketches are decrypted and encrypted anew."""
    with pq.ParquetFile(path, pre_buffer=False) as file:
        names, kept = file.schema_arrow.names, file.schema_arrow.metadata or {}
        earliest = names == _EARLIEST
        way = "" if earliest else kept[_WAY].decode()
        width = 0 if earliest else file.schema_arrow.field("sketch").type.byte_width
        key = _sketch_key(salt)
        cipher = None if earliest else _cipher_of(key, kept[_NONCE])
        maker = IndexPartMaker(folder, way=way, width=width, salt=salt)
        blocks = np.zeros(file.metadata.num_rows, np.int32)
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            rows = np.arange(maker.size, maker.size + batch.num_rows)
            owner, stored, content, block, content_block = (
                np.asarray(batch.column(name))
                for name in (
                    ["owner", "content", "content", "block", "block"] if earliest else _EARLIER
                )
            )
            blocks[rows] = block
            sketches = np.zeros((batch.num_rows, 0), np.uint8)
            if cipher is not None:
                hidden = _bytes_of(batch.column("sketch"), width)
                sketches = np.frombuffer(cipher.update(hidden), np.uint8).reshape(-1, width)
            maker.add(
                widened(owner),
                widened(stored),
                widened(content),
                sketches,
                rows=rows,
                content_blocks=content_block.astype(np.int32),
            )
    part = maker.part(blocks)
    if not earliest:
        return part
    return IndexPart(
        owners=part.owners,
        stored=part.stored,
        contents=NOTHING,
        way="",
        sketches=KnownSketches(
            part.sketches.hidden[:0],
            part.sketches.distinct[:0],
            part.sketches.blocks[:0],
            key,
            bytes(16),
        ),
    )


def widened(hashes: NDArray[np.uint64]) -> Hashes:
    """Hashes of 64 bits among those of 128."""
    wide = np.zeros(hashes.size, WIDE)
    wide["high"] = hashes
    return wide


def _column(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """The same bytes as a column; nothing is copied."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _bytes_of(column: pa.Array, width: int) -> bytes:
    buffer = memoryview(column.buffers()[1])
    return bytes(buffer[column.offset * width : (column.offset + len(column)) * width])


def _sketch_key(salt: bytes) -> bytes:
    return hashlib.blake2b(digest_size=32, key=salt, person=b"dpal.sketches").digest()


def _cipher(key: bytes, nonce: bytes, block: int) -> Any:
    """Goes on with a key stream of this version, whose counter begins at 0, from a block on."""
    return _cipher_of(key, block.to_bytes(4, "little") + nonce[4:])


def _cipher_of(key: bytes, nonce: bytes) -> Any:
    return Cipher(ChaCha20(key, nonce), mode=None).encryptor()


_NO_NUMBERS = np.zeros(0, np.uint64)
NOTHING = FirstBlocks(_NO_NUMBERS, _NO_NUMBERS, np.zeros(0, np.int32))
