"""Index files: what is kept of a data set's records, so that they are recognised later.

For each record an index file holds keyed hashes of its owner, of its content as it is stored and
as a model sees it, the blocks of both, and a sketch of the content, encrypted under the salt of the
data set. Files of earlier versions hold the owner, the content as it is stored and one block.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from dpal.data.likeness import Sketches
from dpal.errors import DataError
from dpal.files.atomic_writes import write_private_parquet

Hashes = NDArray[np.uint64]
Blocks = NDArray[np.int16]

_EARLIER = ["owner", "content", "block"]  # contents as they are stored
_COLUMNS = [
    ("owner", pa.uint64()),
    ("stored", pa.uint64()),
    ("content", pa.uint64()),
    ("block", pa.int16()),
    ("content_block", pa.int16()),
]
_WAY, _NONCE = b"dpal.likeness", b"dpal.nonce"
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False, kw_only=True)
class IndexPart:
    """One index file.

    Attributes:
      owners: (n,) keyed hashes.
      owner_blocks: (n,) block of each owner.
      stored: (n,) keyed hashes of contents as they were stored.
      contents: (n,) keyed hashes of contents as a model sees them.
      content_blocks: (n,) block of each content.
      way: how contents were read and sketches made; empty in files of earlier versions, which
        have neither: `contents` and `sketches` are empty, too.
      sketches: (n, width)
    """

    owners: Hashes
    owner_blocks: Blocks
    stored: Hashes
    contents: Hashes
    content_blocks: Blocks
    way: str
    sketches: Sketches


def write_index(part: IndexPart, path: Path, *, salt: bytes) -> None:
    """Writes an index file; sketches are encrypted under the salt."""
    width, nonce = part.sketches.shape[1], secrets.token_bytes(16)
    metadata = {_WAY: part.way.encode(), _NONCE: nonce}
    schema = pa.schema([*_COLUMNS, ("sketch", pa.binary(width))], metadata=metadata)
    columns = (part.owners, part.stored, part.contents, part.owner_blocks, part.content_blocks)

    def batches() -> Iterator[pa.RecordBatch]:
        cipher = _cipher(salt, nonce)
        for start in range(0, part.owners.size, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            plain = part.sketches[rows]
            hidden = pa.py_buffer(cipher.update(plain.tobytes()))
            sketches = pa.Array.from_buffers(pa.binary(width), len(plain), [None, hidden])
            arrays = [pa.array(column[rows]) for column in columns]
            yield pa.record_batch([*arrays, sketches], schema=schema)

    write_private_parquet(path, schema, batches)


def read_index(path: Path, *, salt: bytes) -> IndexPart:
    """Reads an index file of this or an earlier version.

    Raises:
      DataError: it is missing or damaged.
    """
    try:
        table = pq.read_table(path)
        if table.schema.names == _EARLIER:
            return _earlier(table)
        owners, stored, contents, owner_blocks, content_blocks = (
            np.asarray(table.column(name)) for name, _ in _COLUMNS
        )
        way, nonce = table.schema.metadata[_WAY].decode(), table.schema.metadata[_NONCE]
        plain = _cipher(salt, nonce).update(_joined_bytes(table.column("sketch")))
        sketches = np.frombuffer(plain, np.uint8).reshape(len(owners), -1)
    except (OSError, pa.ArrowException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError.before_release(
            f"{path} is missing or damaged; without it records of the data set cannot be "
            "recognised, restore it"
        ) from error
    return IndexPart(
        owners=owners,
        owner_blocks=owner_blocks,
        stored=stored,
        contents=contents,
        content_blocks=content_blocks,
        way=way,
        sketches=sketches,
    )


def _earlier(table: pa.Table) -> IndexPart:
    owners, stored, blocks = (np.asarray(table.column(name)) for name in _EARLIER)
    return IndexPart(
        owners=owners,
        owner_blocks=blocks,
        stored=stored,
        contents=np.zeros(0, np.uint64),
        content_blocks=blocks,
        way="",
        sketches=np.zeros((0, 0), np.uint8),
    )


def _joined_bytes(column: pa.ChunkedArray) -> bytes:
    width = column.type.byte_width
    return b"".join(
        memoryview(part.buffers()[1])[part.offset * width : (part.offset + len(part)) * width]
        for part in column.chunks
    )


def _cipher(salt: bytes, nonce: bytes) -> CipherContext:
    key = hashlib.blake2b(digest_size=32, key=salt, person=b"dpal.sketches").digest()
    return Cipher(ChaCha20(key, nonce), mode=None).encryptor()
