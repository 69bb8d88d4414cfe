"""Which records of a data set are known already, and to which block they belong.

A block is what arrived together. Index files hold keyed hashes of owners (ids, or groups where
a group is protected) and of contents: enough to recognise a record under another name or a name
with another content, and nothing to read. 18 bytes a record.

An owner's block never changes, or a record could be paid for by whichever block has more left.
A chance agreement of two hashes makes a new record look known: below 1 in 100,000 for ten
million records, and it spends an older budget.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
from numpy.typing import NDArray

from dpal.data.catalog import Content, Source
from dpal.data.readers import RawBatch, decode, raw_batches
from dpal.data.texts import texts_in
from dpal.errors import DataError
from dpal.persist import write_private_parquet

UNKNOWN = -1

Hashes = NDArray[np.uint64]
Blocks = NDArray[np.int16]

_INDEX = pa.schema([("owner", pa.uint64()), ("content", pa.uint64()), ("block", pa.int16())])
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Marks:
    """Keyed hashes of a pool's records, in the order of its rows.

    Attributes:
      owners: (n,) of who is protected: the id, or the group.
      contents: (n,) of the image's bytes, the features or the texts.
    """

    owners: Hashes
    contents: Hashes

    def __getitem__(self, rows: NDArray[np.bool_]) -> Marks:
        return Marks(self.owners[rows], self.contents[rows])


@dataclass(frozen=True, eq=False)
class Assigned:
    """A pool's records among the blocks of a data set.

    Attributes:
      blocks: (n,) of each row's owner; UNKNOWN for owners of whom nothing is known.
      disputed: (n,) rows whose content belongs to another block than their owner. Whichever
        paid, the other one's record would be used for nothing: they take no part.
      unindexed: (n,) rows whose owner or content is not on file yet.
    """

    blocks: Blocks
    disputed: NDArray[np.bool_]
    unindexed: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class KnownRecords:
    """All records of a data set, for looking others up.

    Attributes:
      owners: (n,) sorted hashes.
      owner_blocks: (n,) block of each.
      contents: (m,) sorted hashes.
      content_blocks: (m,) block in which each came first.
    """

    owners: Hashes
    owner_blocks: Blocks
    contents: Hashes
    content_blocks: Blocks

    @classmethod
    def of_index(cls, files: Sequence[tuple[Marks, Blocks]]) -> KnownRecords:
        """Merges index files in the order in which they were written; what came first counts."""
        number = np.concatenate([np.zeros(0, np.int16), *(blocks for _, blocks in files)])
        columns: list[tuple[Hashes, Blocks]] = []
        for name in ("owners", "contents"):
            marks = [np.zeros(0, np.uint64), *(getattr(one, name) for one, _ in files)]
            unique, at = np.unique(np.concatenate(marks), return_index=True)
            columns.append((unique, number[at]))  # unique keeps the first
        return cls(*columns[0], *columns[1])

    def assign(self, marks: Marks) -> Assigned:
        """Finds the block of every record.

        A new owner with known content is as old as that content; the oldest counts.
        """
        by_owner = _look_up(self.owners, self.owner_blocks, marks.owners)
        by_content = _look_up(self.contents, self.content_blocks, marks.contents)
        latest = np.int16(np.iinfo(np.int16).max)
        owners, at = np.unique(marks.owners, return_inverse=True)
        oldest = np.full(owners.size, latest, np.int16)
        np.minimum.at(oldest, at, np.where(by_content == UNKNOWN, latest, by_content))
        inferred = np.where(oldest == latest, np.int16(UNKNOWN), oldest)[at]
        blocks = np.where(by_owner == UNKNOWN, inferred, by_owner).astype(np.int16)
        return Assigned(
            blocks=blocks,
            disputed=(by_content != UNKNOWN) & (by_content != blocks),
            unindexed=(by_owner == UNKNOWN) | (by_content == UNKNOWN),
        )

    def overlap(self, marks: Marks) -> float:
        """How much of a file is known: 1.0 if any owner is, else the share of known contents."""
        if (_look_up(self.owners, self.owner_blocks, marks.owners) != UNKNOWN).any():
            return 1.0
        known = _look_up(self.contents, self.content_blocks, marks.contents) != UNKNOWN
        return float(known.mean()) if known.size else 0.0


def first_of_owner(marks: Marks, eligible: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which eligible rows are the first of their owner, shape (n,)."""
    rows = np.flatnonzero(eligible)
    first = np.zeros(marks.owners.size, dtype=bool)
    first[rows[np.unique(marks.owners[rows], return_index=True)[1]]] = True
    return first


def scan(
    source: Source,
    salt: bytes,
    *,
    owner_column: str | None = "id",
    on_rows: Callable[[int], object] = lambda count: None,
) -> Marks:
    """Reads a pool once and hashes its owners and contents.

    Args:
      source: the pool.
      salt: 32 bytes under which everything is hashed; never leaves.
      owner_column: "id", or the column that names the group; None hashes contents alone.
      on_rows: told how many more rows were read.

    Raises:
      DataError: the owner column is missing, neither text nor whole numbers, or has rows
        without a value.
    """
    owners: list[Hashes] = []
    contents: list[Hashes] = []
    if owner_column is not None:
        for path in source.paths:
            _require_owners(path, owner_column)
    columns = [source.content.value] + ([owner_column] if owner_column is not None else [])
    for batch in raw_batches(source, columns):
        if owner_column is not None:
            owners.append(_hashed(_names(batch, source), salt))
        contents.append(_hashed(_bytes_of(source.content, batch), salt))
        on_rows(batch.table.num_rows)
    empty = np.zeros(0, np.uint64)
    return Marks(np.concatenate([empty, *owners]), np.concatenate([empty, *contents]))


def write_index(marks: Marks, blocks: Blocks, path: Path) -> None:
    """Writes an index file."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, marks.owners.size, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            columns = [pa.array(one[rows]) for one in (marks.owners, marks.contents, blocks)]
            yield pa.record_batch(columns, schema=_INDEX)

    write_private_parquet(path, _INDEX, batches)


def read_index(path: Path) -> tuple[Marks, Blocks]:
    """Reads an index file.

    Raises:
      DataError: it is missing or damaged.
    """
    try:
        table = pq.read_table(path, schema=_INDEX)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path} is missing or damaged; without it records of the data set cannot be "
            "recognised, restore it (nothing was released)"
        ) from error
    owners, contents, blocks = (np.asarray(table.column(name)) for name in _INDEX.names)
    return Marks(owners, contents), blocks


def _require_owners(path: Path, column: str) -> None:
    schema = pq.read_schema(path)
    if column not in schema.names:
        raise DataError(
            f"{path} has no column {column!r}, which says who is protected; add it, nothing was "
            "released"
        )
    kind = schema.field(column).type
    if not (pt.is_string(kind) or pt.is_large_string(kind) or pt.is_integer(kind)):
        # 5 and 5.0 would be two people.
        raise DataError(
            f"column {column!r} of {path} holds {kind}; who is protected is named by texts or "
            "whole numbers, nothing was released"
        )


def _names(batch: RawBatch, source: Source) -> Iterator[bytes]:
    for row, name in enumerate(batch.table.column(1).to_pylist(), start=batch.first_row):
        if name is None or name == "":
            raise DataError(
                f"row {{row}} of {source.name} does not say whose it is; fill in the column, "
                "nothing was released",
                row=row,
            )
        yield str(name).encode()


def _look_up(known: Hashes, blocks: Blocks, wanted: Hashes) -> Blocks:
    if not known.size:
        return np.full(wanted.size, UNKNOWN, np.int16)
    at = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    return np.where(known[at] == wanted, blocks[at], UNKNOWN).astype(np.int16)


def _bytes_of(content: Content, batch: RawBatch) -> Iterator[bytes]:
    column = batch.table.column(0)
    if content is Content.IMAGE and not column.null_count:
        return (bytes(one) for one in column.to_pylist())
    if content is Content.TEXT:
        # The texts themselves, whatever tokenizer reads them; JSON keeps a pair apart.
        return (json.dumps(one).encode() for one in texts_in(column, first_row=batch.first_row))
    rows = decode(content, column, first_row=batch.first_row).numpy()
    return (row.tobytes() for row in rows)


def _hashed(values: Iterator[bytes], salt: bytes) -> Hashes:
    parts = [hashlib.blake2b(one, digest_size=8, key=salt).digest() for one in values]
    return np.frombuffer(b"".join(parts), dtype=np.uint64)
