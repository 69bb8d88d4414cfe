"""Disjoint parts of the private records, one for each teacher.

Parts follow from ids (or groups) and a public seed alone: whatever a record contains, all
others stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpal.data.ballot_files import ballots_schema, read_columns, require_texts
from dpal.data.parquet import schema_of
from dpal.data.readers import raw_batches
from dpal.data.sources import Source
from dpal.errors import DataError, ParameterError
from dpal.files.atomic_writes import write_private_parquet
from dpal.randomness import seeded

_refuse = DataError.before_release  # parts are read before anything is spent


_ROWS_AT_ONCE = 1 << 20
_SCHEMA = pa.schema([("id", pa.string()), ("teacher", pa.int64()), ("group", pa.string())])


def assign_parts(keys: pa.ChunkedArray, parts: int, *, seed: int) -> NDArray[np.int64]:
    """Deals records out, all of one key together, the keys of any two parts differing by one.

    Args:
      keys: (n,) ids or groups, as texts.
      parts: how many.
      seed: public.

    Returns:
      (n,) number of each record's part.

    Raises:
      ParameterError: there are fewer keys than parts.
    """
    encoded = keys.combine_chunks().dictionary_encode()
    names = encoded.dictionary
    if len(names) < parts:
        raise ParameterError.before_release(
            f"{len(names):,} records or groups cannot be dealt out to {parts:,} teachers; lower "
            "teachers.count"
        )
    # In the order of their characters, wherever they stand in the pool.
    in_order = np.asarray(pc.sort_indices(names))
    order = seeded(seed, "parts of teachers").permutation(len(names))
    part = np.empty(len(names), dtype=np.int64)
    part[in_order[order]] = np.arange(len(names)) % parts
    return np.asarray(part[encoded.indices.to_numpy()])


def write_parts(
    path: Path, source: Source, parts: int, *, group_column: str | None, seed: int
) -> None:
    """Deals a pool out and writes who got which record. Private.

    Raises:
      DataError: a record has no group.
    """
    ids, keys = record_keys(source, group_column)
    _write(path, ids, assign_parts(keys, parts, seed=seed), keys)


def write_given_parts(
    path: Path, source: Source, given: Path, parts: int, *, group_column: str | None
) -> None:
    """Takes over parts that somebody else chose, of every record of the pool.

    Raises:
      DataError: parts overlap, or a record of the pool is in none.
    """
    _write(path, *_given_parts(source, given, parts, group_column=group_column))


def require_same_parts(
    path: Path, source: Source, given: Path, parts: int, *, group_column: str | None
) -> None:
    """Requires that parts which were taken over are still those that somebody chose.

    Raises:
      DataError: they are others now, or none.
    """
    _, dealt, _ = _given_parts(source, given, parts, group_column=group_column)
    if not np.array_equal(dealt, read_parts(path)):
        raise DataError(
            f"{given} deals records out otherwise than when these teachers were begun, and what "
            "they promise is of the parts of then; put that file back, or choose another name"
        )


def _given_parts(
    source: Source, given: Path, parts: int, *, group_column: str | None
) -> tuple[pa.ChunkedArray, NDArray[np.int64], pa.ChunkedArray]:
    """Ids of the pool, numbers of their teachers, and what is dealt out together, (n,) each."""
    require_parts(given, parts)
    records, told = owners_and_teachers(given)
    names = named_teachers(given)
    number = {name: index for index, name in enumerate(names)}
    ids, keys = record_keys(source, group_column)
    teacher_of = dict(zip(records, told, strict=True))
    # How many, not which: errors reach the orchestrator.
    names_of_records = ids.to_pylist()
    if missing := sum(record_id not in teacher_of for record_id in names_of_records):
        raise DataError.before_release(
            f"{given} gives {missing:,} records of the pool to no teacher"
        )
    dealt = np.array([number[teacher_of[name]] for name in names_of_records], dtype=np.int64)
    # Checked before it is written: what lies there is taken for good.
    if len(set(zip(keys.to_pylist(), dealt.tolist(), strict=True))) > len(pc.unique(keys)):
        raise DataError.before_release(
            f"{given} gives records of one group to two teachers or more, so that a group moves "
            "several ballots; keep groups together"
        )
    if not np.bincount(dealt, minlength=parts).all():
        raise DataError.before_release(f"{given} names a teacher without a record of the pool")
    return ids, dealt, keys


def read_parts(path: Path) -> NDArray[np.int64]:
    """(rows,) number of each record's teacher, in the order of the pool."""
    return np.asarray(pq.read_table(path, columns=["teacher"]).column(0).to_numpy())


def require_disjoint(file: Path, teachers: Sequence[str], *, groups: bool = False) -> None:
    """Requires that no private record, and no group, was seen by two teachers.

    Args:
      file: Parquet with `id`, `teacher` and, where groups are protected, `group`.
      teachers: that voted.
      groups: whether groups are protected, so that there must be a column of them.

    Raises:
      DataError: two partitions overlap, or one is not there. Nothing was released.
    """
    schema = ballots_schema(file)
    columns = [name for name in ("id", "teacher", "group") if name in schema.names]
    if "id" not in columns or "teacher" not in columns:
        raise _refuse(f"{file} has no columns 'id' and 'teacher'")
    if groups and "group" not in columns:
        raise _refuse(f"{file} has no column 'group', and groups are protected; add it")
    require_texts(schema, columns, file)
    table = read_columns(file, columns)
    # Counting skips what is missing: a record of an unknown teacher would pass for disjoint.
    if any(column.null_count for column in table.columns):
        raise _refuse(f"{file} has a row without {' or '.join(columns)}")
    if missing := set(teachers) - set(table.column("teacher").cast(pa.string()).to_pylist()):
        raise _refuse(f"{file} says nothing of teacher {min(missing)}")
    for key in columns:
        if key == "teacher":
            continue
        pairs = table.group_by(["teacher", key]).aggregate([])
        many = pairs.group_by(key).aggregate([("teacher", "count")])
        overlapping = pc.sum(pc.greater(many.column("teacher_count"), 1)).as_py() or 0
        if overlapping:
            what = "records were" if key == "id" else "groups were"
            raise _refuse(
                f"{overlapping:,} {what} seen by two teachers or more ({file}), so that one of "
                "them moves several ballots; train on disjoint partitions"
            )


def owners_and_teachers(file: Path) -> tuple[list[str], list[str]]:
    """Ids of records, and whose each is, as a file of partitions says.

    Raises:
      DataError: it is no such file. Nothing was released.
    """
    schema = ballots_schema(file)
    if "id" not in schema.names or "teacher" not in schema.names:
        raise _refuse(f"{file} has no columns 'id' and 'teacher'")
    require_texts(schema, ["id", "teacher"], file)
    ids, teachers = read_columns(file, ["id", "teacher"]).columns
    return ids.cast(pa.string()).to_pylist(), teachers.cast(pa.string()).to_pylist()


def named_teachers(given: Path) -> list[str]:
    """Names of the teachers of a file of parts, in the order of their numbers.

    Raises:
      DataError: it is no such file. Nothing was released.
    """
    return sorted(set(owners_and_teachers(given)[1]))


def require_parts(given: Path, parts: int) -> None:
    """Requires disjoint parts of as many teachers as there are, before anything is held.

    Raises:
      DataError: they are not. Nothing was released.
    """
    require_disjoint(given, ())
    names = named_teachers(given)
    if len(names) != parts:
        raise DataError.before_release(
            f"{given} names {len(names)} teachers and teachers.count is {parts}; make them agree"
        )


def require_groups(source: Source, group_column: str | None) -> None:
    """Requires the column of groups, where there is to be one.

    Raises:
      DataError: a file has none. Nothing was released.
    """
    if group_column is not None and not has_column(source, group_column):
        raise DataError.before_release(
            f"{source.name} has no column {group_column!r} (teachers.group_column)"
        )


def has_column(source: Source, name: str) -> bool:
    """Whether all files of a source have a column."""
    return all(name in schema_of(path).names for path in source.paths)


def record_keys(
    source: Source, group_column: str | None
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Ids, and what is dealt out together: groups where there is a column, else ids. (n,) each."""
    columns = ["id"] if group_column is None else ["id", group_column]
    require_groups(source, group_column)
    ids: list[pa.Array] = []
    keys: list[pa.Array] = []
    for batch in raw_batches(source, columns):
        last = batch.table.column(len(columns) - 1)
        if last.null_count:
            raise DataError.before_release(f"{source.name} has a record without {columns[-1]}")
        ids.append(_as_text(batch.table.column(0)))
        keys.append(ids[-1] if group_column is None else _as_text(last))
    # Offsets of 32 bits would end at 2 GiB of ids.
    kind = pa.large_string()
    return pa.chunked_array(ids, kind), pa.chunked_array(keys, kind)


def _as_text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()).cast(pa.large_string())


def _write(
    path: Path, ids: pa.ChunkedArray, parts: NDArray[np.int64], keys: pa.ChunkedArray
) -> None:
    table = pa.table([ids, pa.array(parts), keys], names=_SCHEMA.names)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, table.num_rows, _ROWS_AT_ONCE):
            some = table.slice(start, _ROWS_AT_ONCE).combine_chunks().cast(_SCHEMA)
            yield from some.to_batches()

    write_private_parquet(path, _SCHEMA, batches)
