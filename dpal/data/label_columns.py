"""Label columns: a class number, or a list with a 0 or 1 for each label (-1: not known)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import torch
from torch import Tensor

from dpal.data.parquet import RowNumbers, row_error
from dpal.labels import UNKNOWN, Label, Task

MOST_CLASSES = 100_000

_STORED = {Task.SINGLE_LABEL: pa.int64(), Task.MULTI_LABEL: pa.list_(pa.int8())}


def task_of(kind: pa.DataType) -> Task | None:
    """What labels of a column's type are; None where they are no labels."""
    if pt.is_integer(kind):
        return Task.SINGLE_LABEL
    lists = pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)
    return Task.MULTI_LABEL if lists and pt.is_integer(kind.value_type) else None


def stored_type(task: Task) -> pa.DataType:
    """The type of a label column that dpal writes."""
    return _STORED[task]


def as_label(value: Any) -> Label:
    """A label as a value that can be compared, from what a column gives."""
    return tuple(value) if isinstance(value, list) else int(value)


def classes_in(
    column: pa.Array, task: Task, *, known: int, rows: RowNumbers, names: int = 0
) -> int:
    """Checks a column of labels and says how many classes or labels there are.

    Args:
      column: the labels; nulls are records without one.
      task: what a label is.
      known: how many there are by earlier rows; 0 for none yet.
      rows: which rows they are, for messages.
      names: how many the file names; 0 for none.

    Raises:
      DataError: a class number is negative or far above any number of classes; a list has
        another length than those before, or something in it that is neither 0 nor 1 nor -1 (not
        known). No label is quoted: they are private.
    """
    labeled = pc.drop_null(column)
    if not len(labeled):
        return known
    positions = np.flatnonzero(np.asarray(pc.is_valid(column)))
    if task is Task.SINGLE_LABEL:
        bounds = pc.min_max(labeled)
        if bounds["min"].as_py() < 0:
            first = positions[np.asarray(pc.less(labeled, 0))][0]
            raise row_error(rows, first, "has a negative label; classes are numbered from 0")
        if bounds["max"].as_py() >= MOST_CLASSES:
            raise row_error(
                rows,
                positions[np.asarray(labeled) >= MOST_CLASSES][0],
                f"has a label of {MOST_CLASSES:,} or more; classes are numbered from 0 without "
                "gaps, number them anew",
            )
        return max(known, int(bounds["max"].as_py()) + 1)
    lengths = np.asarray(pc.list_value_length(labeled))
    numbers = pc.list_flatten(labeled)
    # Of the same type: not every unsigned number is a signed one.
    highest = pa.scalar(1, numbers.type)
    wanted = f"a 0 or 1 for each of {names:,} labels" if names else "a 0 or 1 for each label"
    above = np.flatnonzero(np.asarray(pc.fill_null(pc.greater(numbers, highest), False)))
    if above.size:
        raise row_error(
            rows,
            positions[np.searchsorted(np.cumsum(lengths), above[0], side="right")],
            "lists a number above 1, which looks like the number of a class; every record needs "
            f"{wanted}, such as [0, 1, 0] for class 1 of three",
        )
    width = known or int(lengths[0])
    odd = np.flatnonzero((lengths != width) | (lengths == 0))
    if odd.size:
        raise row_error(
            rows,
            positions[odd[0]],
            f"has {{count}} labels and others have {{others}}; give every record {wanted}, at "
            "least one (class numbers are not read)",
            count=lengths[odd[0]],
            others=width,
        )
    allowed = [0, 1] if pt.is_unsigned_integer(numbers.type) else [UNKNOWN, 0, 1]
    known_values = pc.is_in(numbers, pa.array(allowed, numbers.type))
    sound = np.asarray(pc.fill_null(pc.and_(known_values, pc.is_valid(numbers)), False))
    wrong = ~sound.reshape(len(labeled), width).all(axis=1)
    if wrong.any():
        raise row_error(
            rows,
            positions[wrong][0],
            f"has a label that is neither 0 nor 1; multi-label data has {wanted}, and {UNKNOWN} "
            "where it is not known",
        )
    return width


def label_tensor(column: pa.Array | pa.ChunkedArray, task: Task) -> Tensor:
    """Turns n labels, none of them null, into one tensor.

    Returns:
      (n,) int64 class numbers; or (n, labels) int8 zeros and ones, -1 where a label is not known,
      (0, 0) without records.
    """
    if task is Task.SINGLE_LABEL:
        return torch.from_numpy(np.array(column.to_numpy(), dtype=np.int64))
    values = np.array(pc.list_flatten(column).to_numpy(), dtype=np.int8)
    return torch.from_numpy(values.reshape(len(column), values.size // max(1, len(column))))
