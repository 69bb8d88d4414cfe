"""Records of a data set that are known already, and the blocks to which they belong.

A block is what arrived together. Records are recognised by keyed hashes of their owner (the id, or
the group where a group is protected) and of their content, as it is stored and as a model sees it,
and by a sketch of the content (`dpal.data.likeness`): under another name, with another content, and
as a copy that was encoded anew, resized or retyped. Pools are read in slabs, and hashes are looked
up where they lie, so that memory does not grow with what is known.

An owner's block never changes, or a record could be paid for by whichever block has more left.
A chance agreement of two hashes of 128 bits makes a new record look known: below 1 in 10^22 for
a hundred million records, and it spends an older budget.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.types as pt
from numpy.typing import NDArray

from dpal.data.hash_runs import SHARED, WIDE
from dpal.data.likeness import KINDS, WAYS, Described, Sketches
from dpal.data.parquet import row_error, schema_of
from dpal.data.readers import BATCH_ROWS, RawBatch, decode, raw_batches
from dpal.data.recognition_index import (
    NARROW_BITS,
    UNKNOWN,
    WIDE_BITS,
    Blocks,
    FirstBlocks,
    Hashes,
    IndexPart,
    IndexPartMaker,
    KnownSketches,
    widened,
)
from dpal.data.sources import Content, Source
from dpal.data.texts import texts_in
from dpal.errors import DataError
from dpal.files.stored_objects import Place

# Share of a file's contents that may be known under other names, or be like known ones: few
# values of a table make different people look alike.
COINCIDENCE = 0.01
# The same for contents that say little, such as two words or an empty picture.
COMMONPLACE = 0.1

SLAB_ROWS = 1 << 18  # of a pool that are looked up together
_WINDOW = 1 << 20  # sketches that are compared at once
_ALL = slice(None)

OnRows = Callable[[int], object]


@dataclass(frozen=True)
class MarkKey:
    """Under what records are hashed; hashes under different ones say nothing about each other.

    Attributes:
      salt: 32 bytes; never leaves.
      bits: of a hash: 128, or 64 in index files of earlier versions.
      owner_column: "id", or the column that names the group; None reads contents alone.
    """

    salt: bytes
    bits: int = WIDE_BITS
    owner_column: str | None = "id"

    def __repr__(self) -> str:
        return f"MarkKey(bits={self.bits})"  # wherever it might be printed or logged


@dataclass(frozen=True, eq=False, kw_only=True)
class Marks:
    """What some records of a pool are recognised by, in the order of its rows.

    Attributes:
      owners: (n,) keyed hashes of who is protected: the id, or the group; (0,) if nobody asked.
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
            owners=self.owners[rows] if self.owners.size else self.owners,
            stored=self.stored[rows],
            contents=self.contents[rows],
            way=self.way,
            sketches=self.sketches[rows],
            telling=self.telling[rows],
        )

    def put(
        self,
        maker: IndexPartMaker,
        some: NDArray[np.bool_] | slice,
        *,
        rows: NDArray[np.int64],
        content_blocks: Blocks,
    ) -> None:
        """Adds some of the records to an index file in the making; `rows` and blocks are of all."""
        maker.add(
            self.owners[some],
            self.stored[some],
            self.contents[some],
            self.sketches[some],
            rows=rows[some],
            content_blocks=content_blocks[some],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class LookedUp:
    """What is known of some records.

    Attributes:
      owners: (n,) block of each one's owner; UNKNOWN for owners of whom nothing is known.
      contents: (n,) block of each one's content; UNKNOWN where neither it nor one like it is.
      same: (n,) whether the content is known, and not only one like it.
      indexed: (n,) whether owner and content are on file as this version writes them.
      content_indexed: (n,) whether the content is.
    """

    owners: Blocks
    contents: Blocks
    same: NDArray[np.bool_]
    indexed: NDArray[np.bool_]
    content_indexed: NDArray[np.bool_]


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


class OverlapCount:
    """An overlap that is counted slab by slab."""

    def __init__(self) -> None:
        self._owners = False
        self._telling = self._known_telling = self._contents = self._known = 0

    def add(self, looked_up: LookedUp, marks: Marks) -> None:
        """Counts some more records."""
        known = looked_up.contents != UNKNOWN
        self._owners |= bool((looked_up.owners != UNKNOWN).any())
        self._telling += int(marks.telling.sum())
        self._known_telling += int(known[marks.telling].sum())
        self._contents += known.size
        self._known += int(known.sum())

    def result(self) -> Overlap:
        """Of all that were counted."""
        if self._owners:
            return Overlap(owners=True, telling=1.0, contents=1.0)
        return Overlap(
            owners=False,
            telling=self._known_telling / max(1, self._telling),
            contents=self._known / max(1, self._contents),
        )


@dataclass(frozen=True, eq=False)
class KnownRecords:
    """All records of a data set, for looking others up.

    Attributes:
      parts: index files in the order in which they were written, by the key of each; what came
        first counts. Keys are in the order of their first files.
      current: the key under which this version writes.
    """

    parts: Mapping[MarkKey, Sequence[IndexPart]]
    current: MarkKey

    @property
    def keys(self) -> tuple[MarkKey, ...]:
        """Under which a pool is to be hashed to be looked up, and written."""
        return tuple(dict.fromkeys([*self.parts, self.current]))

    def look_up(self, marks: Mapping[MarkKey, Marks]) -> LookedUp:
        """Finds the blocks of some records, by their marks under each key."""
        size = marks[self.current].contents.size
        owners, same = (np.full(size, UNKNOWN, np.int32) for _ in range(2))
        indexed = content_indexed = np.zeros(size, bool)
        for key, parts in self.parts.items():
            own = marks[key]
            by_owner = _first_of([part.owners for part in parts], own.owners, size)
            by_content = _first_of([part.contents for part in parts], own.contents, size)
            by_bytes = _first_of([part.stored for part in parts], own.stored, size)
            _fill(owners, by_owner)
            _fill(same, by_content)
            _fill(same, by_bytes)
            if key == self.current:
                content_indexed = by_content != UNKNOWN
                indexed = content_indexed & (by_owner != UNKNOWN)
        contents = same.copy()
        for key, parts in self.parts.items():
            rows = np.flatnonzero(contents == UNKNOWN)
            sketched = [part for part in parts if part.way == marks[key].way]
            if rows.size and sketched:
                contents[rows] = _alike(sketched, marks[key].way, marks[key].sketches[rows])
        return LookedUp(
            owners=owners,
            contents=contents,
            same=same != UNKNOWN,
            indexed=indexed,
            content_indexed=content_indexed,
        )

    def overlap(self, source: Source, *, rows: NDArray[np.bool_] | None = None) -> Overlap:
        """How much of a file, or of some of its rows (n,), is known."""
        count = OverlapCount()
        for first, marks in slabs(source, self.keys):
            if rows is not None:
                there = rows[first : first + marks[self.current].telling.size]
                marks = {key: own.of(there) for key, own in marks.items()}
            count.add(self.look_up(marks), marks[self.current])
        return count.result()

    def unread(self) -> NDArray[np.uint64]:
        """Short hashes of contents that are known as they were stored alone, sorted."""
        never, read = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
        for key, parts in self.parts.items():
            if key.bits == NARROW_BITS:
                never += [np.asarray(part.stored.high) for part in parts if not part.way]
                read += [np.asarray(part.stored.high) for part in parts if part.way]
        return np.setdiff1d(np.concatenate(never), np.concatenate(read))


def marks_as_block(marks: Marks, key: MarkKey) -> KnownRecords:
    """Records as if they were a data set of one block."""
    maker = IndexPartMaker(SHARED, way=marks.way, width=marks.sketches.shape[1], salt=key.salt)
    blocks = np.zeros(marks.telling.size, np.int32)
    marks.put(maker, _ALL, rows=np.arange(blocks.size), content_blocks=blocks)
    return KnownRecords({key: [maker.part(blocks)]}, key)


def pool_as_block(source: Source, key: MarkKey) -> KnownRecords:
    """Records of a pool as if they were a data set of one block, whatever memory there is.

    Raises:
      DataError: as `slabs`.
      StorageError: there is no room in the system's folder for temporary files.
    """
    kind = KINDS[source.content]
    maker = IndexPartMaker(SHARED, way=kind.WAY, width=kind.WIDTH, salt=key.salt)
    for _, marks in slabs(source, [key]):
        blocks = np.zeros(marks[key].telling.size, np.int32)
        rows = np.arange(maker.size, maker.size + blocks.size)
        marks[key].put(maker, _ALL, rows=rows, content_blocks=blocks)
    return KnownRecords({key: [maker.part(np.zeros(maker.size, np.int32))]}, key)


def slabs(
    source: Source,
    keys: Sequence[MarkKey],
    *,
    on_rows: OnRows = lambda count: None,
) -> Iterator[tuple[int, dict[MarkKey, Marks]]]:
    """Reads a pool once, and hashes its records under several keys.

    Memory: of a slab, some 130 bytes a record for each key; slabs are the smaller the more keys.

    Args:
      source: the pool.
      keys: whose salts never leave.
      on_rows: told how many more rows were read.

    Yields:
      The first row of a slab, and its marks by key.

    Raises:
      DataError: an owner column is missing, neither text nor whole numbers, or has rows
        without a value; or a record cannot be read.
    """
    kind, keys = KINDS[source.content], list(dict.fromkeys(keys))
    owner_columns = list(dict.fromkeys(filter(None, (key.owner_column for key in keys))))
    for column in owner_columns:
        _owner_columns(source, column)
    wanted = [source.content.value, *owner_columns]
    most = max(BATCH_ROWS, SLAB_ROWS // max(1, len(keys)))
    held: dict[MarkKey, list[Marks]] = {key: [] for key in keys}
    first = count = 0
    for batch in raw_batches(source, wanted):
        for key, marks in _marks_of(batch, source, keys, owner_columns).items():
            held[key].append(marks)
        count += batch.table.num_rows
        on_rows(batch.table.num_rows)
        if count >= most:
            yield first, {key: _joined(parts) for key, parts in held.items()}
            first, count, held = first + count, 0, {key: [] for key in keys}
    if count or not first:
        nothing = _nothing(kind.WAY, kind.WIDTH)
        yield first, {key: _joined([nothing, *parts]) for key, parts in held.items()}


def scan(source: Source, salt: bytes, *, owner_column: str | None = "id") -> Marks:
    """The marks of all records of a pool under one salt, in memory: some 130 bytes a record.

    Raises:
      DataError: as `slabs`.
    """
    key = MarkKey(salt, owner_column=owner_column)
    return _joined([marks[key] for _, marks in slabs(source, [key])])


def _marks_of(
    batch: RawBatch, source: Source, keys: Sequence[MarkKey], owner_columns: Sequence[str]
) -> dict[MarkKey, Marks]:
    """Marks of one batch; what does not depend on a salt is made once."""
    kind, column = KINDS[source.content], batch.table.column(0)
    described: dict[bytes, Described] = {}
    names = {
        name: list(_names(batch, column=1 + number)) for number, name in enumerate(owner_columns)
    }
    stored = list(_as_stored(source.content, batch))
    marks = {}
    for key in keys:
        salt = key.salt if kind.SALTED else b""
        if salt not in described:
            described[salt] = kind.describe(column, rows=batch.numbers, salt=key.salt)
        own = described[salt]
        marks[key] = Marks(
            owners=_marked(names.get(key.owner_column or "", []), key),
            stored=_marked(stored, key),
            contents=_marked(own.contents, key, kind.WAY),
            way=kind.WAY,
            sketches=own.sketches,
            telling=own.telling,
        )
    return marks


def _joined(parts: Sequence[Marks]) -> Marks:
    return Marks(
        owners=np.concatenate([part.owners for part in parts]),
        stored=np.concatenate([part.stored for part in parts]),
        contents=np.concatenate([part.contents for part in parts]),
        way=parts[0].way,
        sketches=np.concatenate([part.sketches for part in parts]),
        telling=np.concatenate([part.telling for part in parts]),
    )


def _nothing(way: str, width: int) -> Marks:
    none = np.zeros(0, WIDE)
    return Marks(
        owners=none,
        stored=none,
        contents=none,
        way=way,
        sketches=np.zeros((0, width), np.uint8),
        telling=np.zeros(0, bool),
    )


def _first_of(files: Sequence[FirstBlocks], wanted: Hashes, size: int) -> Blocks:
    """Blocks (size,) of hashes in the first file that has them; UNKNOWN of hashes nobody asked."""
    blocks = np.full(size, UNKNOWN, np.int32)
    if wanted.size:
        for file in files:
            rows = np.flatnonzero(blocks == UNKNOWN)
            blocks[rows] = file.find(wanted[rows])
    return blocks


def _fill(blocks: Blocks, others: Blocks) -> None:
    np.copyto(blocks, others, where=blocks == UNKNOWN)


def _alike(parts: Sequence[IndexPart], way: str, sketches: Sketches) -> Blocks:
    """Blocks of contents of which one that is like them is known, UNKNOWN for others."""
    known, kind = _Laid(parts), WAYS[way]
    found = np.full(len(sketches), UNKNOWN, np.int32)
    if kind.NEAREST:  # of all, and it reads a few at a time itself
        matches = kind.find(known, sketches)
        close = np.flatnonzero(matches >= 0)
        found[close] = known.blocks(matches[close])
        return found
    for begin in range(0, len(known), _WINDOW):
        rows = np.flatnonzero(found == UNKNOWN)
        window, told = known[begin : begin + _WINDOW], known.told(begin, begin + _WINDOW)
        matches = kind.find(window[told], sketches[rows])
        close = np.flatnonzero(matches >= 0)
        found[rows[close]] = known.blocks(begin + np.flatnonzero(told)[matches[close]])
    return found


class _Laid:
    """Sketches of several index files, one after the other, of which some are read at a time."""

    def __init__(self, parts: Sequence[IndexPart]) -> None:
        self._parts = [part.sketches for part in parts]
        self._ends = np.cumsum([len(part.blocks) for part in self._parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, rows: slice) -> Sketches:
        some = [part.read(begin, end) for part, begin, end in self._within(rows.start, rows.stop)]
        return np.concatenate(some)

    def told(self, begin: int, end: int) -> NDArray[np.bool_]:
        """Which of some say something that none before them in their file said."""
        within = self._within(begin, end)
        return np.concatenate([part.distinct[start:stop] for part, start, stop in within])

    def blocks(self, rows: NDArray[np.intp]) -> Blocks:
        """Blocks of some rows."""
        where = np.searchsorted(self._ends, rows, side="right")
        found = np.empty(rows.size, np.int32)
        for number, part in enumerate(self._parts):
            own = where == number
            start = int(self._ends[number - 1]) if number else 0
            found[own] = part.blocks[rows[own] - start]
        return found

    def _within(self, begin: int, end: int) -> Iterator[tuple[KnownSketches, int, int]]:
        start = 0
        for part, stop in zip(self._parts, self._ends.tolist(), strict=True):
            if begin < stop and end > start:
                yield part, max(begin, start) - start, min(end, stop) - start
            start = stop


def owners_in(source: Source, owner_column: str) -> NDArray[np.uint64]:
    """Hashes of the owners of all rows, of use by themselves: under no salt.

    Raises:
      DataError: the column is missing, neither text nor whole numbers, or has rows without a
        value.
    """
    batches = raw_batches(source, _owner_columns(source, owner_column))
    hashes = [hashed(_names(batch, column=0), bytes(32)) for batch in batches]
    return np.concatenate([np.zeros(0, np.uint64), *hashes])


def _owner_columns(source: Source, owner_column: str | None) -> list[str]:
    if owner_column is None:
        return []
    for path in source.paths:
        _require_owners(path, owner_column)
    return [owner_column]


def _require_owners(path: Place, column: str) -> None:
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


def hashed(values: Iterable[bytes], salt: bytes) -> NDArray[np.uint64]:
    """Short keyed hashes (n,), for comparing files with each other."""
    return np.frombuffer(_digests(values, salt, "", NARROW_BITS), dtype=np.uint64)


def _marked(values: Iterable[bytes], key: MarkKey, way: str = "") -> Hashes:
    """Keyed hashes (n,); those of one way say nothing about those of another."""
    digests = _digests(values, key.salt, way, key.bits)
    if key.bits == NARROW_BITS:
        return widened(np.frombuffer(digests, dtype=np.uint64))
    return np.frombuffer(digests, WIDE)


def _digests(values: Iterable[bytes], salt: bytes, way: str, bits: int) -> bytes:
    size, person = bits // 8, way.encode()
    parts = [hashlib.blake2b(value, digest_size=size, key=salt, person=person) for value in values]
    return b"".join(part.digest() for part in parts)
