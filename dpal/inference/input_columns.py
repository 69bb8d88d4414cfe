"""Columns of records as a served model takes them: their kinds, an example, and their reading.

A model of a table takes the table's own columns and makes numbers of them as the import of its
pool did. All others take a pool's column: `image`, `features`, `text_a` (and `text_b`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from dpal.data.importing.column_encoding import Column, NumberColumn, ReadCells, TableEncoding
from dpal.data.importing.picture_form import encoded, prepared
from dpal.data.pictures import Shape, is_deep
from dpal.data.readers import decode
from dpal.data.sources import Content
from dpal.errors import DataError
from dpal.inference.released_model import ReleasedModel

_SMALL = (1, 32, 32)  # the example's picture, where nobody asks for it


class InputKind(StrEnum):
    """What the cells of a column are.

    NUMBER, CATEGORY, DATE (ISO 8601): of a table; nothing where one is missing.
    TEXT: a text. NUMBERS: a list of numbers, all lists equally long. PICTURE: the bytes of a
    picture's file.
    """

    NUMBER = "number"
    CATEGORY = "category"
    DATE = "date"
    TEXT = "text"
    NUMBERS = "numbers"
    PICTURE = "picture"


@dataclass(frozen=True, kw_only=True)
class InputColumn:
    """One column.

    Attributes:
      name: as records have it.
      kind: what its cells are.
      example: a cell that is nobody's.
    """

    name: str
    kind: InputKind
    example: Any


def input_columns(model: ReleasedModel, picture: Shape | None = None) -> list[InputColumn]:
    """The columns that a model takes, with an example that holds nothing of a record.

    The example's cells are zeros, a black picture and a made-up text; of a table, means and
    categories out of the model's own description, which is beside it anyway.

    Args:
      model: what predicts.
      picture: (channels, height, width) of the example's picture; None for a small one.
    """
    if table := _table_of(model):
        return [_of_table(column) for column in table.columns]
    if model.content is Content.TEXT:
        return [
            InputColumn(name=name, kind=InputKind.TEXT, example="a text of some words")
            for name in model.texts
        ]
    if model.content is Content.FEATURES:
        zeros = [0.0] * math.prod(model.spec.input_shape)
        return [InputColumn(name="features", kind=InputKind.NUMBERS, example=zeros)]
    picture = picture or _SMALL
    black = np.zeros(picture, np.uint8).transpose(1, 2, 0)
    file = encoded(black if picture[0] == 3 else black[:, :, 0])
    return [InputColumn(name="image", kind=InputKind.PICTURE, example=file)]


def require_columns(model: ReleasedModel, records: pd.DataFrame) -> None:
    """Requires that records have all columns that a model takes.

    Raises:
      DataError: one is not there.
    """
    names = [column.name for column in input_columns(model)]
    missing = [name for name in names if name not in records.columns]
    if missing:
        raise DataError(
            f"records have no column {missing[0]!r}; this model takes {', '.join(names)}"
        )


def read_records(model: ReleasedModel, records: pd.DataFrame) -> Tensor:
    """Turns records into what a model's extractor, or its network, takes.

    Args:
      model: what predicts.
      records: n rows with all columns, see `require_columns`; others are passed over.

    Returns:
      (n, *shape), as `dpal.data.readers.decode` gives it.

    Raises:
      DataError: a cell cannot be read.
    """
    if table := _table_of(model):
        cells = {column.name: _cells(column, records[column.name]) for column in table.columns}
        features = table.encode(pa.RecordBatch.from_pydict(cells), _require_numbers)
        return torch.from_numpy(features)
    column = _READERS[model.content](model, records)
    deep = model.content is Content.IMAGE and any(is_deep(file.as_py() or b"") for file in column)
    return decode(model.content, column, rows=None, encoding=model.encoding, deep=deep)


def _require_numbers(name: str, found: ReadCells) -> None:
    """Requires that cells of a column of numbers or dates are some; a file's are counted instead.

    Raises:
      DataError: some are given and none.
    """
    if found.unread:
        raise DataError(
            f"column {name!r} has cells that are no numbers (or dates, where it has these: "
            "2026-01-31); leave them out where they are missing"
        )


def _table_of(model: ReleasedModel) -> TableEncoding | None:
    return None if model.recipe is None else model.recipe.columns


def _of_table(column: Column) -> InputColumn:
    if not isinstance(column, NumberColumn):
        value = column.values[0] if column.values else ""
        return InputColumn(name=column.name, kind=InputKind.CATEGORY, example=value)
    mean = math.expm1(column.mean) + column.low if column.logarithm else column.mean
    if column.dated:
        day = np.datetime64(round(mean), "D")
        return InputColumn(name=column.name, kind=InputKind.DATE, example=str(day))
    return InputColumn(name=column.name, kind=InputKind.NUMBER, example=mean)


def _cells(column: Column, values: pd.Series[Any]) -> pa.Array:
    """Cells of a table, as the import of a file would have them."""
    of_numbers = isinstance(column, NumberColumn) and not column.dated
    if of_numbers and pd.api.types.is_numeric_dtype(values):
        return pa.array(values.to_numpy(np.float64, na_value=np.nan), from_pandas=True)
    return pa.array([_as_text(value) for value in values], pa.string())


def _as_text(value: object) -> str | None:
    """A cell as a file would have it written; None where there is none."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, float | np.floating):
        return None if math.isnan(value) else str(value)  # 3.0 and 3 are one category
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    return str(value)


def _texts(model: ReleasedModel, records: pd.DataFrame) -> pa.Array:
    columns = []
    for name in model.texts:
        texts = [_as_text(value) for value in records[name]]
        columns.append(pa.array(texts, pa.string()))
    return pa.StructArray.from_arrays(columns, list(model.texts))


def _lists(model: ReleasedModel, records: pd.DataFrame) -> pa.Array:
    try:
        return pa.array(list(records["features"]), pa.list_(pa.float32()))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError("records need a list of numbers each in column 'features'") from error


def _pictures(model: ReleasedModel, records: pd.DataFrame) -> pa.Array:
    """Files of pictures, brought to the form that the pool's were brought to."""
    files = list(records["image"])
    if model.recipe is not None:
        rule = model.recipe.picture_rule
        # What cannot be read stays as it is: its reader says so.
        files = [
            prepared(file, rule) or file if isinstance(file, bytes) else file for file in files
        ]
    try:
        return pa.array(files, pa.binary())
    except (pa.ArrowException, TypeError) as error:
        raise DataError("records need the bytes of a picture's file each, in 'image'") from error


_READERS: dict[Content, Callable[[ReleasedModel, pd.DataFrame], pa.Array]] = {
    Content.TEXT: _texts,
    Content.FEATURES: _lists,
    Content.IMAGE: _pictures,
}
