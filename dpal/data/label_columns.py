"""Label columns: a class number, or a list with a 0 or 1 for each label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import torch
from torch import Tensor

from dpal.errors import DataError
from dpal.labels import Label, Task

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


def classes_in(column: pa.Array, task: Task, *, known: int, first_row: int) -> int:
    """Checks a column of labels and says how many classes or labels there are.

    Args:
      column: the labels; nulls are records without one.
      task: what a label is.
      known: how many there are by earlier rows; 0 for none yet.
      first_row: position of the first value, for messages.

    Raises:
      DataError: a class number is negative; a list has another length than those before, or
        something in it that is neither 0 nor 1.
    """
    labeled = pc.drop_null(column)
    if not len(labeled):
        return known
    rows = first_row + np.flatnonzero(np.asarray(pc.is_valid(column)))
    if task is Task.SINGLE_LABEL:
        bounds = pc.min_max(labeled)
        if bounds["min"].as_py() < 0:
            row = rows[np.asarray(pc.less(labeled, 0))][0]
            raise DataError("row {row} has a negative label; classes are numbered from 0", row=row)
        return max(known, int(bounds["max"].as_py()) + 1)
    lengths = np.asarray(pc.list_value_length(labeled))
    width = known or int(lengths[0])
    odd = np.flatnonzero((lengths != width) | (lengths == 0))
    if odd.size:
        raise DataError(
            "row {row} has {count} labels and others have {others}; give every record a 0 or 1 for "
            "each label, at least one",
            row=rows[odd[0]],
            count=lengths[odd[0]],
            others=width,
        )
    binary = np.asarray(pc.fill_null(pc.is_in(pc.list_flatten(labeled), pa.array([0, 1])), False))
    wrong = ~binary.reshape(len(labeled), width).all(axis=1)
    if wrong.any():
        raise DataError(
            "row {row} has a label that is neither 0 nor 1; multi-label data has a 0 or 1 for each "
            "label",
            row=rows[wrong][0],
        )
    return width


def label_tensor(column: pa.Array | pa.ChunkedArray, task: Task) -> Tensor:
    """Turns n labels, none of them null, into one tensor.

    Returns:
      (n,) int64 class numbers; or (n, labels) int8 zeros and ones, (0, 0) without records.
    """
    if task is Task.SINGLE_LABEL:
        return torch.from_numpy(np.array(column.to_numpy(), dtype=np.int64))
    values = np.array(pc.list_flatten(column).to_numpy(), dtype=np.int8)
    return torch.from_numpy(values.reshape(len(column), values.size // max(1, len(column))))
