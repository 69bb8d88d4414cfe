"""One pass over a file before a campaign: is every row what the campaign will rely on?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpal.data.hash_runs import NARROW, SHARED, HashRuns, hashes_of_names
from dpal.data.known_records import hashed
from dpal.data.label_columns import classes_in
from dpal.data.likeness import KINDS
from dpal.data.parquet import row_error
from dpal.data.pictures import is_deep
from dpal.data.pool_file_digests import LearnedFiles
from dpal.data.readers import RawBatch, apply_extractor, decoded_of, decoding_threads, raw_batches
from dpal.data.sources import Content, Role, Source
from dpal.data.verified_row_groups import KnownFile
from dpal.errors import DataError
from dpal.labels import Task

_KINDS = {
    Task.SINGLE_LABEL: "class numbers",
    Task.MULTI_LABEL: "lists with a 0 or 1 for each label",
}


_MOST_LOADED = 2**34
_COMPARED = 2**16  # hashes whose names are compared in one pass
_DARK = 4096  # of 65,536 levels: the sixteenth of the range that 12 of 16 bits fill


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What an inspected file holds.

    Attributes:
      rows: records in the source's role.
      input_shape: shape of one record as a model sees it.
      task: what a label is.
      classes: highest class number + 1, or the number of labels; 0 without labels.
      fully_labeled: whether every row has a label.
      present: class numbers that some row has, ascending; of single labels only.
      files: what each file held.
    """

    rows: int
    input_shape: tuple[int, ...]
    task: Task
    classes: int
    fully_labeled: bool
    present: tuple[int, ...] = ()
    files: tuple[KnownFile, ...] = field(default=(), compare=False, repr=False)


# Of a row that was seen: hashes of its content, equal where a model sees the same, and its name.
SEEN = np.dtype([("high", "<u8"), ("name", "<u8")])


@dataclass(eq=False)
class RowHashes:
    """What tells the rows of two files apart; of this process alone.

    Attributes:
      salt: 32 bytes under which contents are hashed, the same for files that are compared.
      rows: once the file was read: SEEN of each row, on disk where they are many.
    """

    salt: bytes
    rows: HashRuns = field(default_factory=lambda: HashRuns(SHARED, SEEN))


def inspect(
    source: Source,
    *,
    on_rows: Callable[[int], object] = lambda count: None,
    seen: RowHashes | None = None,
) -> Inventory:
    """Reads every row once: names unique, records decodable, labels as they should be.

    Memory hardly grows with the file. A long one takes room in the system's folder for temporary
    files: eight bytes a row for the names, and sixteen for what was `seen`.

    Args:
      source: the file and its role.
      on_rows: told how many more rows were read.
      seen: filled with this file's rows, to be compared with another's.

    Raises:
      DataError: the first thing found wrong, with its row number.
      StorageError: there is no room for hashes.
    """
    hashes = HashRuns(SHARED, NARROW)
    shape: tuple[int, ...] | None = None
    rows, classes, fully_labeled = 0, 0, source.label_column is not None
    present, brightest = set[int](), 0
    columns = [name for name in source.columns if name != "split"]
    learned = LearnedFiles()
    for batch in raw_batches(source, columns, large=True, learned=learned):
        names = _name_hashes(batch)
        hashes.add(names.view(NARROW))
        column = batch.table.column(source.content.value)
        if source.content is Content.IMAGE:
            _require_one_depth(source, column, batch)
        # Not one pixel of an image that differs from the first is decoded.
        records = decoded_of(
            source, column, rows=batch.numbers, shape=shape, threads=decoding_threads()
        )
        if shape is None:
            shape, sample = tuple(records.shape[1:]), records[:1]
        if tuple(records.shape[1:]) != shape:
            raise row_error(
                batch.numbers,
                0,
                "has a record of shape {shape}, earlier ones have {others}; bring all to one shape",
                shape=tuple(records.shape[1:]),
                others=shape,
            )
        if source.deep:
            brightest = max(brightest, int(records.numpy().max()))
        if seen is not None:
            read = KINDS[source.content].contents(column, records, rows=batch.numbers)
            told = np.empty(names.size, SEEN)
            told["high"], told["name"] = hashed(read, seen.salt), names
            seen.rows.add(told)
        if source.label_column:
            labels = batch.table.column(source.label_column)
            fully_labeled &= labels.null_count == 0
            classes = classes_in(
                labels,
                source.task,
                known=classes,
                rows=batch.numbers,
                names=len(source.class_names),
            )
            if source.task is Task.SINGLE_LABEL:
                present |= set(pc.unique(pc.drop_null(labels)).to_pylist())
        rows += batch.table.num_rows
        on_rows(batch.table.num_rows)
    if shape is None:
        wanted = f" with split {source.role.value!r}" if source.has_split else ""
        if source.held_out is not None:
            raise DataError.before_release(
                f"{source.name} has no rows: there are too few records, or groups, to hold some "
                "out by a coin for each; take another share, or name a file of validation records"
            )
        raise DataError(f"{source.name} has no rows{wanted}; a campaign needs some")
    _require_unique(hashes, source)
    if source.role is Role.VALIDATION and rows * records[:1].nbytes > _MOST_LOADED:
        raise DataError(
            f"{source.name} has {rows:,} records of {records[:1].nbytes:,} bytes each, and a "
            f"validation set is kept in memory, at most {_MOST_LOADED:,} bytes of it; take fewer "
            "or smaller ones"
        )
    if source.deep and brightest < _DARK:
        raise DataError(
            f"{source.name} has images of 16 bits in which no value is above {_DARK - 1:,} of "
            "65,535, so that a model would see them nearly black; they seem to hold 12 bits or "
            "fewer, bring their values to the whole range"
        )
    named = len(source.class_names)
    if source.task is Task.MULTI_LABEL and classes and named not in (0, classes):
        raise DataError(
            f"{source.name} names {named} labels in its metadata (class_names) and its rows have "
            f"{classes}; bring both to one number"
        )
    return Inventory(
        rows=rows,
        input_shape=tuple(apply_extractor(source, sample).shape[1:]),
        task=source.task,
        classes=classes,
        fully_labeled=fully_labeled,
        present=tuple(sorted(present)),
        files=tuple(learned.files),
    )


def _require_one_depth(source: Source, column: pa.Array, batch: RawBatch) -> None:
    """Requires images of one depth, so that the first says how all others are read."""
    for position, value in enumerate(column):
        if value.is_valid and is_deep(value.as_py()) is not source.deep:
            raise row_error(
                batch.numbers,
                position,
                "has an image of {bits} bits of grey and the first one {others}; bring all images "
                "to one depth",
                bits=8 if source.deep else 16,
                others=16 if source.deep else 8,
            )


def require_match(pool: Inventory, validation: Inventory) -> None:
    """Requires a pool and a validation set of records of one shape, with labels of one kind.

    Raises:
      DataError: shapes differ, or what a label is, or how many labels there are.
    """
    if pool.input_shape != validation.input_shape:
        raise DataError(
            f"pool records have shape {pool.input_shape}, validation records "
            f"{validation.input_shape}; bring both to one shape"
        )
    if pool.task is not validation.task:
        raise DataError(
            f"labels of the pool are {_KINDS[pool.task]} and those of the validation set "
            f"{_KINDS[validation.task]}; bring both to one kind"
        )
    if pool.task is Task.MULTI_LABEL and pool.classes not in (0, validation.classes):
        raise DataError(
            f"pool records have {pool.classes} labels, validation records {validation.classes}; "
            "bring both to the same labels, in the same order"
        )


def require_apart(public: Source, other: Source, why: str) -> None:
    """Requires that no record of another kind is among public ones, by their names.

    Memory: eight bytes a public record. Two different names are taken for one with a chance of
    2^-64 for each pair; that refuses what was fine, and lets nothing through.

    Args:
      public: records that anybody may see.
      other: records that are protected, or that models are judged on.
      why: what is wrong with a record that is both.

    Raises:
      DataError: a name stands in both.
    """
    names = [_name_hashes(batch) for batch in raw_batches(public, ["id"], large=True)]
    public_hashes = np.unique(np.concatenate(names)) if names else np.empty(0, np.uint64)
    for batch in raw_batches(other, ["id"], large=True):
        hashes = _name_hashes(batch)
        positions = np.minimum(
            np.searchsorted(public_hashes, hashes), max(0, public_hashes.size - 1)
        )
        if public_hashes.size and (public_hashes[positions] == hashes).any():
            raise DataError.before_release(
                f"records of {public.name} have the names of records of {other.name}; {why}, take "
                "them out"
            )


def _name_hashes(batch: RawBatch) -> NDArray[np.uint64]:
    ids = batch.table.column("id")
    if ids.null_count:
        position = int(pc.index(pc.is_null(ids), True).as_py())
        raise row_error(batch.numbers, position, "has no id; give every record a unique name")
    return hashes_of_names(ids)


def _require_unique(hashes: HashRuns, source: Source) -> None:
    """Compares 64-bit hashes, and names themselves where two agree: those are read again."""
    for rows in hashes.in_order():
        ordered = rows["high"]
        repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        for first in range(0, repeated.size, _COMPARED):
            _require_other_names(repeated[first : first + _COMPARED], source)


def _require_other_names(repeated: NDArray[np.uint64], source: Source) -> None:
    """Requires that names of the same hash are others; of each a digest is in memory."""
    seen: dict[bytes, str] = {}
    for batch in raw_batches(source, ["id"], large=True):
        ids = batch.table.column("id")
        for position in np.flatnonzero(np.isin(_name_hashes(batch), repeated)).tolist():
            name = sha256(ids[position].as_py().encode()).digest()
            if name in seen:
                raise row_error(
                    batch.numbers,
                    position,
                    "and {first} have the same id; one record, one id",
                    first=seen[name],
                )
            seen[name] = f"row {batch.numbers.numbers[position]} of {batch.numbers.path}"
