"""Whose records are whose: a person, a household or a site, as a column of the pool says.

A group is known by the row of its first record in the pool's file, which speaks for all of it where
records are selected. Who belongs together is public, as are ids: no content of a record is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from dpal.data.parquet import schema_of
from dpal.data.readers import raw_batches
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.files.stored_objects import Place

OUTSIDE = -1  # a row that never takes part with its group


def read_groups(source: Source, column: str) -> NDArray[np.int64]:
    """Reads the group of each row: the row of its first record, shape (n,).

    Args:
      source: a pool, in one file or several.
      column: that says who belongs together; values are compared as text.

    Raises:
      DataError: there is no such column, or a row has no value in it.
    """
    for path in source.paths:
        _require_column(path, column)
    first: dict[str, int] = {}
    groups: list[NDArray[np.int64]] = []
    for batch in raw_batches(source, [column]):
        values = batch.table.column(0)
        if values.null_count:
            raise DataError.before_release(
                f"{source.name} has rows without a value in column {column!r} "
                "(data.group_column, or --group of the data set); give each a group, one of its "
                "own where it belongs to nobody else"
            )
        names = values.cast(pa.string()).to_pylist()
        rows = [first.setdefault(name, row) for name, row in zip(names, batch.rows, strict=True)]
        groups.append(np.array(rows, dtype=np.int64))
    return np.concatenate(groups)


def _require_column(path: Place, column: str) -> None:
    schema = schema_of(path)
    if column not in schema.names:
        there = ", ".join(schema.names)
        raise DataError.before_release(
            f"{path} has no column {column!r} (data.group_column, or --group of the data set); it "
            f"has {there}"
        )
    kind = schema.field(column).type
    if not (pt.is_string(kind) or pt.is_large_string(kind) or pt.is_integer(kind)):
        raise DataError.before_release(
            f"column {column!r} of {path} (data.group_column, or --group of the data set) holds "
            f"{kind}; groups are named by texts or whole numbers"
        )


def require_other_groups(pool: Source, validation: Source, column: str) -> None:
    """Requires that no group has records in both, so that none is charged for either.

    Args:
      pool: private records.
      validation: protected records that figures are measured on.
      column: that says who belongs together, in both.

    Raises:
      DataError: a group has, or either has no such column.
    """
    names = [_names(source, column) for source in (pool, validation)]
    if shared := len(names[0] & names[1]):
        raise DataError.before_release(
            f"{{shared}} groups of {validation.name} (column {column!r}) have records in the pool "
            f"{pool.name} as well, and would lose what both promise; keep all records of a group "
            "in one of the two files",
            shared=f"{shared:,}",
        )


def _names(source: Source, column: str) -> set[str]:
    for path in source.paths:
        _require_column(path, column)
    return {
        name
        for batch in raw_batches(source, [column])
        for name in batch.table.column(0).cast(pa.string()).to_pylist()
    }


def count_groups(groups: NDArray[np.int64]) -> int:
    """How many there are."""
    return int(np.unique(groups).size)


def within_cap(groups: NDArray[np.int64], most: int | None) -> NDArray[np.int64]:
    """The same, `OUTSIDE` for all but the first records of each group.

    Args:
      groups: (n,) as read; rows that are `OUTSIDE` already stay so.
      most: records of a group that take part, in the order of the file; None for all.

    >>> within_cap(np.array([0, 1, 0, 0]), 2)
    array([ 0,  1,  0, -1])
    """
    if most is None:
        return groups
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=OUTSIDE - 1))
    lengths = np.diff(np.append(starts, groups.size))
    rank = np.empty_like(groups)
    rank[order] = np.arange(groups.size) - np.repeat(starts, lengths)
    return np.where(rank < most, groups, OUTSIDE)


@dataclass(frozen=True, kw_only=True)
class OwnedRows:
    """Rows of a file, and whose they are.

    Attributes:
      rows: (n,) ascending.
      owners: (n,) number of each row's group, from 0 in the order of their first rows.
    """

    rows: NDArray[np.int64]
    owners: NDArray[np.int64]


def measured_owners(source: Source, column: str, most: int) -> OwnedRows:
    """The first records of each group of a source.

    Args:
      source: protected records that figures are measured on.
      column: that says who belongs together.
      most: records of one group, in the order of the file.

    Raises:
      DataError: as `read_groups`.
    """
    groups = within_cap(read_groups(source, column), most)
    rows = np.flatnonzero(groups != OUTSIDE).astype(np.int64)
    owners = np.unique(groups[rows], return_inverse=True)[1].astype(np.int64)
    return OwnedRows(rows=rows, owners=owners)


def rows_of_groups(groups: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """All rows of the groups that some rows speak for, ascending."""
    return np.flatnonzero(np.isin(groups, rows)).astype(np.int64)
