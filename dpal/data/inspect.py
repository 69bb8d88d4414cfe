"""One pass over a file before a campaign: is every row what the campaign will rely on?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpal.data.catalog import Source
from dpal.data.readers import decode, raw_batches
from dpal.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What an inspected file holds.

    Attributes:
      rows: records in the source's role.
      input_shape: shape of one record as a model sees it.
      classes: highest label + 1, or 0 without labels.
      fully_labeled: whether every row has a label.
    """

    rows: int
    input_shape: tuple[int, ...]
    classes: int
    fully_labeled: bool


def inspect(source: Source, *, on_rows: Callable[[int], object] = lambda count: None) -> Inventory:
    """Reads every row once: names unique, records decodable, labels whole numbers >= 0.

    Memory: eight bytes a row for the names.

    Args:
      source: the file and its role.
      on_rows: told how many more rows were read.

    Raises:
      DataError: the first thing found wrong, with its row number.
    """
    hashes: list[NDArray[np.uint64]] = []
    shape: tuple[int, ...] | None = None
    rows, classes, fully_labeled = 0, 0, source.label_column is not None
    columns = [name for name in source.columns if name != "split"]
    for batch in raw_batches(source, columns):
        hashes.append(_name_hashes(batch.table.column("id"), batch.first_row))
        records = decode(
            source.content, batch.table.column(source.content.value), first_row=batch.first_row
        )
        shape = shape or tuple(records.shape[1:])
        if tuple(records.shape[1:]) != shape:
            raise DataError(
                f"row {batch.first_row} of {source.name} has a record of shape "
                f"{tuple(records.shape[1:])}, earlier ones have {shape}; bring all to one shape"
            )
        if source.label_column:
            labels = batch.table.column(source.label_column)
            fully_labeled &= labels.null_count == 0
            classes = max(classes, _highest(labels, batch.first_row) + 1)
        rows += batch.table.num_rows
        on_rows(batch.table.num_rows)
    if shape is None:
        wanted = f" with split {source.role.value!r}" if source.has_split else ""
        raise DataError(f"{source.name} has no rows{wanted}; a campaign needs some")
    _require_unique(np.concatenate(hashes), source)
    return Inventory(rows=rows, input_shape=shape, classes=classes, fully_labeled=fully_labeled)


def require_match(pool: Inventory, validation: Inventory) -> None:
    """Requires a pool and a validation set of records of one shape.

    Raises:
      DataError: shapes differ.
    """
    if pool.input_shape != validation.input_shape:
        raise DataError(
            f"pool records have shape {pool.input_shape}, validation records "
            f"{validation.input_shape}; bring both to one shape"
        )


def _name_hashes(ids: pa.Array, first_row: int) -> NDArray[np.uint64]:
    if ids.null_count:
        row = first_row + int(pc.index(pc.is_null(ids), True).as_py())
        raise DataError(f"row {row} has no id; give every record a unique name")
    return np.array([hash(name) for name in ids.to_pylist()], dtype=np.int64).view(np.uint64)


def _highest(labels: pa.Array, first_row: int) -> int:
    known = pc.drop_null(labels)
    if not len(known):
        return -1
    bounds = pc.min_max(known)
    if bounds["min"].as_py() < 0:
        row = first_row + int(pc.index(pc.less(labels, 0), True).as_py())
        raise DataError(f"row {row} has a negative label; classes are numbered from 0")
    return int(bounds["max"].as_py())


def _require_unique(hashes: NDArray[np.uint64], source: Source) -> None:
    """Compares 64-bit hashes, and reads the file again only if two agree."""
    ordered = np.sort(hashes)
    repeated = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not repeated:
        return
    seen: dict[str, int] = {}
    for batch in raw_batches(source, ["id"]):
        for row, name in zip(
            batch.rows.tolist(), batch.table.column("id").to_pylist(), strict=True
        ):
            if np.int64(hash(name)).view(np.uint64) not in repeated:
                continue
            if name in seen:
                raise DataError(
                    f"rows {seen[name]} and {row} of {source.name} have the same id; "
                    "one record, one id"
                )
            seen[name] = row
