"""Records of a data set that are known already, and the blocks to which they belong.

A block is what arrived together. Records are recognised by keyed hashes of their owner (the id, or
the group where a group is protected) and of their content, as it is stored and as a model sees it,
and by a sketch of the content (`dpal.data.likeness`): under another name, with another content, and
as a copy that was encoded anew, resized or retyped. About 100 bytes a record.

An owner's block never changes, or a record could be paid for by whichever block has more left.
A chance agreement of two hashes makes a new record look known: below 1 in 100,000 for ten
million records, and it spends an older budget.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.types as pt
from numpy.typing import NDArray

from dpal.data.groups import OUTSIDE
from dpal.data.known_index import Blocks, Hashes, IndexPart
from dpal.data.likeness import KINDS, WAYS, Sketches
from dpal.data.parquet import row_error, schema_of
from dpal.data.readers import RawBatch, decode, raw_batches
from dpal.data.sources import Content, Source
from dpal.data.texts import texts_in
from dpal.errors import DataError

UNKNOWN = -1

# Share of a file's contents that may be known under other names, or be like known ones: few
# values of a table make different people look alike.
COINCIDENCE = 0.01
# The same for contents that say little, such as two words or an empty picture.
COMMONPLACE = 0.1

_NO_HASHES, _NO_BLOCKS = np.zeros(0, np.uint64), np.zeros(0, np.int16)


@dataclass(frozen=True, eq=False, kw_only=True)
class Marks:
    """What a pool's records are recognised by, in the order of its rows.

    Attributes:
      owners: (n,) keyed hashes of who is protected: the id, or the group.
      stored: (n,) keyed hashes of contents as they are stored: a picture's file, a text. They
        stay the same when what decodes them does not.
      contents: (n,) keyed hashes of contents as a model sees them.
      way: how contents were read and sketches made.
      sketches: (n, width) by which copies are found; all zero where there is too little in it.
      telling: (n,) records that say so much that no two people have the same by chance.
    """

    owners: Hashes
    stored: Hashes
    contents: Hashes
    way: str
    sketches: Sketches
    telling: NDArray[np.bool_]

    def of(self, rows: NDArray[np.bool_]) -> Marks:
        """Those of some rows."""
        return Marks(
            owners=self.owners[rows],
            stored=self.stored[rows],
            contents=self.contents[rows],
            way=self.way,
            sketches=self.sketches[rows],
            telling=self.telling[rows],
        )

    def in_blocks(
        self, rows: NDArray[np.bool_], owner_blocks: Blocks, content_blocks: Blocks
    ) -> IndexPart:
        """Some of the rows, for an index file; blocks are those of all rows."""
        return IndexPart(
            owners=self.owners[rows],
            owner_blocks=owner_blocks[rows],
            stored=self.stored[rows],
            contents=self.contents[rows],
            content_blocks=content_blocks[rows],
            way=self.way,
            sketches=self.sketches[rows],
        )


@dataclass(frozen=True, eq=False)
class Assigned:
    """A pool's records among the blocks of a data set.

    Attributes:
      blocks: (n,) of each row's owner; UNKNOWN for owners of whom nothing is known.
      content_blocks: (n,) of each row's content; UNKNOWN where neither it nor one like it is.
      disputed: (n,) rows whose content belongs to another block than their owner. Whichever
        paid, the other one's record would be used for nothing: they take no part.
      strange: (n,) rows whose owner or content is not known.
      unindexed: (n,) rows whose owner or content is not on file as this version writes it.
      copied: (n,) rows of unknown owners whose content is only like a known one.
    """

    blocks: Blocks
    content_blocks: Blocks
    disputed: NDArray[np.bool_]
    strange: NDArray[np.bool_]
    unindexed: NDArray[np.bool_]
    copied: NDArray[np.bool_]


@dataclass(frozen=True)
class Overlap:
    """How much of a file belongs to a data set.

    Attributes:
      owners: whether any owner does.
      telling: share that does of the contents that say much; 0.0 where none says much.
      contents: share of all contents that does.
    """

    owners: bool
    telling: float
    contents: float

    def is_more_than(self, coincidence: float) -> bool:
        """Whether chance does not explain it: any owner, or more contents than a share."""
        commonplace = max(coincidence, COMMONPLACE)
        return self.owners or self.telling > coincidence or self.contents > commonplace


@dataclass(frozen=True, eq=False)
class FirstBlocks:
    """Sorted hashes, and the block in which each came first."""

    hashes: Hashes
    blocks: Blocks

    @classmethod
    def of(cls, hashes: Sequence[Hashes], blocks: Sequence[Blocks]) -> FirstBlocks:
        """Merges hashes in the order in which they were written; what came first counts."""
        unique, first = np.unique(np.concatenate([_NO_HASHES, *hashes]), return_index=True)
        return cls(unique, np.concatenate([_NO_BLOCKS, *blocks])[first])

    def find(self, wanted: Hashes) -> Blocks:
        """Block of each hash, UNKNOWN where it is not there."""
        if not self.hashes.size:
            return np.full(wanted.size, UNKNOWN, np.int16)
        positions = np.minimum(np.searchsorted(self.hashes, wanted), self.hashes.size - 1)
        return np.where(self.hashes[positions] == wanted, self.blocks[positions], UNKNOWN).astype(
            np.int16
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class KnownRecords:
    """All records of a data set, for looking others up.

    Attributes:
      owners: with the block of each.
      stored: contents as they were stored, with the block in which each came first.
      contents: contents as a model sees them, likewise.
      sketches: of different contents, by the way in which they were made, and their blocks.
      unread: contents that are known as they are stored alone, from index files of earlier
        versions.
    """

    owners: FirstBlocks
    stored: FirstBlocks
    contents: FirstBlocks
    sketches: Mapping[str, tuple[Sketches, Blocks]]
    unread: Hashes

    @classmethod
    def of_index(cls, parts: Sequence[IndexPart]) -> KnownRecords:
        """Merges index files in the order in which they were written; what came first counts."""
        whole = [part for part in parts if part.way]
        owners = FirstBlocks.of(
            [part.owners for part in parts], [part.owner_blocks for part in parts]
        )
        stored = FirstBlocks.of(
            [part.stored for part in parts], [part.content_blocks for part in parts]
        )
        read = np.concatenate([_NO_HASHES, *(part.stored for part in whole)])
        return cls(
            owners=owners,
            stored=stored,
            contents=FirstBlocks.of(
                [part.contents for part in whole], [part.content_blocks for part in whole]
            ),
            sketches={way: _sketches_of(whole, way) for way in {part.way for part in whole}},
            unread=np.setdiff1d(stored.hashes, read),
        )

    def assign(self, marks: Marks) -> Assigned:
        """Finds the block of every record.

        A new owner with known content, or one like it, is as old as that content; the oldest
        counts.
        """
        by_owner = self.owners.find(marks.owners)
        indexed = self.contents.find(marks.contents)
        same = self._same(marks, indexed)
        by_content = self._same_or_alike(marks, same)
        latest = np.int16(np.iinfo(np.int16).max)
        owners, owner_positions = np.unique(marks.owners, return_inverse=True)
        oldest = np.full(owners.size, latest, np.int16)
        np.minimum.at(oldest, owner_positions, np.where(by_content == UNKNOWN, latest, by_content))
        inferred = np.where(oldest == latest, np.int16(UNKNOWN), oldest)[owner_positions]
        blocks = np.where(by_owner == UNKNOWN, inferred, by_owner).astype(np.int16)
        return Assigned(
            blocks=blocks,
            content_blocks=by_content,
            disputed=(by_content != UNKNOWN) & (by_content != blocks),
            strange=(by_owner == UNKNOWN) | (same == UNKNOWN),
            unindexed=(by_owner == UNKNOWN) | (indexed == UNKNOWN),
            copied=(by_owner == UNKNOWN) & (same == UNKNOWN) & (by_content != UNKNOWN),
        )

    def overlap(self, marks: Marks) -> Overlap:
        """How much of a file is known."""
        if (self.owners.find(marks.owners) != UNKNOWN).any():
            return Overlap(owners=True, telling=1.0, contents=1.0)
        same = self._same(marks, self.contents.find(marks.contents))
        recognised = self._same_or_alike(marks, same) != UNKNOWN
        telling = recognised[marks.telling]
        return Overlap(
            owners=False,
            telling=float(telling.mean()) if telling.size else 0.0,
            contents=float(recognised.mean()) if recognised.size else 0.0,
        )

    def _same(self, marks: Marks, by_content: Blocks) -> Blocks:
        """Blocks of contents that are known as a model sees them, or as they are stored."""
        by_bytes = self.stored.find(marks.stored)
        return np.where(by_content == UNKNOWN, by_bytes, by_content).astype(np.int16)

    def _same_or_alike(self, marks: Marks, same: Blocks) -> Blocks:
        """Blocks of contents that are known, or like a known one."""
        rows = np.flatnonzero(same == UNKNOWN)
        if marks.way not in self.sketches or not rows.size:
            return same
        known_sketches, blocks = self.sketches[marks.way]
        matches = WAYS[marks.way].find(known_sketches, marks.sketches[rows])
        together = same.copy()
        together[rows] = np.where(matches < 0, UNKNOWN, blocks[matches])
        return together


def first_of_owner(marks: Marks, eligible: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which eligible rows are the first of their owner, shape (n,)."""
    rows = np.flatnonzero(eligible)
    first = np.zeros(marks.owners.size, dtype=bool)
    first[rows[np.unique(marks.owners[rows], return_index=True)[1]]] = True
    return first


def rows_by_owner(marks: Marks, eligible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The row of its owner's first eligible row, for each eligible row; else OUTSIDE. (n,)."""
    rows = np.flatnonzero(eligible)
    _, first, whose = np.unique(marks.owners[rows], return_index=True, return_inverse=True)
    found = np.full(marks.owners.size, OUTSIDE, dtype=np.int64)
    found[rows] = rows[first][whose]
    return found


def scan(
    source: Source,
    salt: bytes,
    *,
    owner_column: str | None = "id",
    on_rows: Callable[[int], object] = lambda count: None,
) -> Marks:
    """Reads a pool once: who its records belong to, and what they are recognised by.

    Memory: a batch of decoded records, and some 100 bytes a record.

    Args:
      source: the pool.
      salt: 32 bytes under which everything is hashed; never leaves.
      owner_column: "id", or the column that names the group; None reads contents alone.
      on_rows: told how many more rows were read.

    Raises:
      DataError: the owner column is missing, neither text nor whole numbers, or has rows
        without a value; or a record cannot be read.
    """
    kind = KINDS[source.content]
    owners, stored, contents = ([_NO_HASHES] for _ in range(3))
    sketches, telling = [np.zeros((0, kind.WIDTH), np.uint8)], [np.zeros(0, bool)]
    columns = [source.content.value, *_owner_columns(source, owner_column)]
    for batch in raw_batches(source, columns):
        column = batch.table.column(0)
        described = kind.describe(column, rows=batch.numbers, salt=salt)
        if owner_column is not None:
            owners.append(hashed(_names(batch, column=1), salt))
        contents.append(hashed(described.contents, salt, kind.WAY))
        stored.append(hashed(_as_stored(source.content, batch), salt))
        sketches.append(described.sketches)
        telling.append(described.telling)
        on_rows(batch.table.num_rows)
    return Marks(
        owners=np.concatenate(owners),
        stored=np.concatenate(stored),
        contents=np.concatenate(contents),
        way=kind.WAY,
        sketches=np.concatenate(sketches),
        telling=np.concatenate(telling),
    )


def owners_in(source: Source, owner_column: str) -> Hashes:
    """Hashes of the owners of all rows, of use by themselves: under no salt.

    Raises:
      DataError: the column is missing, neither text nor whole numbers, or has rows without a
        value.
    """
    batches = raw_batches(source, _owner_columns(source, owner_column))
    hashes = [hashed(_names(batch, column=0), bytes(32)) for batch in batches]
    return np.concatenate([_NO_HASHES, *hashes])


def _sketches_of(parts: Sequence[IndexPart], way: str) -> tuple[Sketches, Blocks]:
    """Sketches of different contents, the oldest first, and their blocks."""
    parts = [part for part in parts if part.way == way]
    contents = np.concatenate([part.contents for part in parts])
    first = np.sort(np.unique(contents, return_index=True)[1])
    blocks = np.concatenate([part.content_blocks for part in parts])
    return np.concatenate([part.sketches for part in parts])[first], blocks[first]


def _owner_columns(source: Source, owner_column: str | None) -> list[str]:
    if owner_column is None:
        return []
    for path in source.paths:
        _require_owners(path, owner_column)
    return [owner_column]


def _require_owners(path: Path, column: str) -> None:
    schema = schema_of(path)
    if column not in schema.names:
        raise DataError.before_release(
            f"{path} has no column {column!r}, which says who is protected; add it"
        )
    kind = schema.field(column).type
    if not (pt.is_string(kind) or pt.is_large_string(kind) or pt.is_integer(kind)):
        # 5 and 5.0 would be two people.
        raise DataError.before_release(
            f"column {column!r} of {path} holds {kind}; who is protected is named by texts or "
            "whole numbers"
        )


def _names(batch: RawBatch, *, column: int) -> Iterator[bytes]:
    for position, name in enumerate(batch.table.column(column).to_pylist()):
        if name is None or name == "":
            raise row_error(
                batch.numbers,
                position,
                "does not say whose it is; fill in the column",
                refuse=DataError.before_release,
            )
        yield str(name).encode()


def _as_stored(content: Content, batch: RawBatch) -> Iterator[bytes]:
    column = batch.table.column(0)
    if content is Content.IMAGE:
        return (bytes(picture) for picture in column.to_pylist())
    if content is Content.TEXT:
        return (json.dumps(texts).encode() for texts in texts_in(column, rows=batch.numbers))
    rows = decode(content, column, rows=batch.numbers).numpy()
    return (row.tobytes() for row in rows)  # whether they are stored in 32 bits or in 64


def hashed(values: Iterable[bytes], salt: bytes, way: str = "") -> Hashes:
    """Keyed hashes (n,); those of one way say nothing about those of another."""
    person = way.encode()
    parts = [hashlib.blake2b(value, digest_size=8, key=salt, person=person) for value in values]
    return np.frombuffer(b"".join(part.digest() for part in parts), dtype=np.uint64)
