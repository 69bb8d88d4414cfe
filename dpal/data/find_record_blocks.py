"""The block of a data set that every record of a pool belongs to, found slab by slab.

An owner whose content is known already is as old as that content: the oldest counts, over all
records of the owner. So all records of an owner are brought together, by their hashes, on disk
where memory has no room. What is kept in memory is some bytes for each record of the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.data.groups import OUTSIDE
from dpal.data.hash_runs import WIDE, HashRuns, Rows, first_of_equal, with_hashes
from dpal.data.known_records import KnownRecords, MarkKey, Marks, slabs
from dpal.data.parquet import metadata_of
from dpal.data.recognition_index import UNKNOWN, Blocks, IndexPartMaker
from dpal.data.sources import Source

Flags = NDArray[np.bool_]

_OWNERS = np.dtype([*WIDE.descr, ("row", "<i8"), ("block", "<i4")])


@dataclass(frozen=True, eq=False, kw_only=True)
class PlacedRecords:
    """A pool's records among the blocks of a data set.

    Attributes:
      blocks: (n,) of each row's owner; UNKNOWN for owners of whom nothing is known.
      disputed: (n,) rows whose content belongs to another block than their owner. Whichever
        paid, the other one's record would be used for nothing: they take no part. Empty, as
        are the two that follow, where records are put on file.
      eligible: (n,) rows that may take part: the first of each owner that is not disputed.
      owners: (n,) that row of the same owner; OUTSIDE for a disputed one. Of 32 bits, if they
        are enough.
      strange: rows whose owner or content is not known.
      copied: rows of unknown owners whose content is only like a known one.
      new: owners of whom nothing is known.
      unread: contents that an earlier version put on file as they were stored, and that are not
        among these.
    """

    blocks: Blocks
    disputed: Flags
    eligible: Flags
    owners: NDArray[np.signedinteger[Any]]
    strange: int
    copied: int
    new: int
    unread: int

    @property
    def fresh(self) -> Flags:
        """(n,) rows of owners of whom nothing is known."""
        return np.asarray(self.blocks == UNKNOWN)


def place_records(
    source: Source,
    known: KnownRecords,
    folder: Path,
    *,
    maker: IndexPartMaker | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> PlacedRecords:
    """Finds the block of every record of a pool.

    Args:
      source: the pool.
      known: the data set's records.
      folder: for what memory has no room for; private.
      maker: is handed what is not on file as this version writes it; None finds out who may
        take part.
      on_rows: told how many more rows were read.

    Raises:
      DataError: a file cannot be read, or does not say whose its records are.
      StorageError: there is no room in the folder.
    """
    most = sum(metadata_of(path).num_rows for path in source.paths)
    blocks, owner_rows = np.empty(most, np.int32), HashRuns(folder, _OWNERS)
    unread, size, strange, copied = known.unread(), 0, 0, 0
    for first, marks in slabs(source, known.keys, on_rows=on_rows):
        own, looked_up = marks[known.current], known.look_up(marks)
        rows = np.arange(first, first + looked_up.owners.size)
        size += rows.size
        blocks[rows] = looked_up.owners
        owner_rows.add(with_hashes(own.owners, row=rows, block=looked_up.contents))
        nameless = looked_up.owners == UNKNOWN
        strange += int((nameless | ~looked_up.same).sum())
        copied += int((nameless & ~looked_up.same & (looked_up.contents != UNKNOWN)).sum())
        unread = _not_among(unread, marks)
        if maker is not None:
            own.put(maker, ~looked_up.indexed, rows=rows, content_blocks=looked_up.contents)
    blocks = blocks[:size]
    told = size if maker is None else 0
    disputed, eligible = np.zeros(told, bool), np.zeros(told, bool)
    owners, new = np.full(told, OUTSIDE, np.dtype("i4" if size < 2**31 else "i8")), 0
    for rows_of_owners in owner_rows.in_order():
        new += _place_owners(rows_of_owners, blocks)
        if told:
            _find_first(rows_of_owners, blocks, disputed, eligible, owners)
    return PlacedRecords(
        blocks=blocks,
        disputed=disputed,
        eligible=eligible,
        owners=owners,
        strange=strange,
        copied=copied,
        new=new,
        unread=unread.size,
    )


def count_distinct_owners(source: Source, key: MarkKey, folder: Path) -> int:
    """How many owners a pool has.

    Raises:
      DataError, StorageError: as `place_records`.
    """
    runs = HashRuns(folder, WIDE)
    for _, marks in slabs(source, [key]):
        runs.add(marks[key].owners)
    return sum(int(first_of_equal(rows).sum()) for rows in runs.in_order())


def _place_owners(rows: Rows, blocks: Blocks) -> int:
    """Fills in the blocks of some owners, all of whose rows are there; how many are new."""
    places, contents = rows["row"], rows["block"]
    starts, owner = _owners_of(rows)
    # The oldest of the contents of all rows of an owner.
    latest = np.int32(np.iinfo(np.int32).max)
    oldest = np.minimum.reduceat(np.where(contents == UNKNOWN, latest, contents), starts)
    inferred = np.where(oldest == latest, np.int32(UNKNOWN), oldest)[owner]
    own = np.where(blocks[places] == UNKNOWN, inferred, blocks[places])
    blocks[places] = own
    return int((own[starts] == UNKNOWN).sum())


def _find_first(
    rows: Rows, blocks: Blocks, disputed: Flags, eligible: Flags, owners: NDArray[Any]
) -> None:
    """Fills in who of some owners may take part: the first row that is not disputed."""
    places, contents = rows["row"], rows["block"]
    starts, owner = _owners_of(rows)
    apart = (contents != UNKNOWN) & (contents != blocks[places])
    disputed[places] = apart
    sound = np.flatnonzero(~apart)
    leading, first = np.unique(owner[sound], return_index=True)
    first_row = np.full(starts.size, OUTSIDE, np.int64)
    first_row[leading] = places[sound[first]]
    eligible[first_row[leading]] = True
    owners[places[sound]] = first_row[owner[sound]]


def _owners_of(rows: Rows) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where each owner begins, and the number of each row's owner; the rows of one are together."""
    starts = np.flatnonzero(first_of_equal(rows))
    return starts, np.repeat(np.arange(starts.size), np.diff(np.append(starts, rows.size)))


def _not_among(hashes: NDArray[np.uint64], marks: dict[MarkKey, Marks]) -> NDArray[np.uint64]:
    """Short hashes of stored contents that no record has."""
    if hashes.size:
        for own in marks.values():
            hashes = np.setdiff1d(hashes, own.stored["high"])
    return hashes
