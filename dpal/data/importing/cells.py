"""Cells of tables: which are missing, and what they are as numbers or texts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

# What stands for "nothing" in files that people make; upper and lower case alike.
MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none", "-", "."))

Floats = NDArray[np.float64]


def is_missing(text: str | None) -> bool:
    """Whether a cell says nothing."""
    return text is None or text.strip().lower() in MISSING


def cell_texts(column: pa.Array) -> list[str | None]:
    """Cells as trimmed texts; None where one is missing. 1.0 and 1 are one class: 1."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pt.is_floating(column.type):
        return [_number_text(value) for value in column.to_pylist()]
    if pt.is_boolean(column.type):
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)):
        column = column.cast(pa.string())
    return [cell_text(text) for text in column.to_pylist()]


def cell_text(text: str | None) -> str | None:
    """A cell that is a text, trimmed; None where it is missing."""
    return None if text is None or is_missing(text) else text.strip()


def _number_text(value: float | None) -> str | None:
    if value is None or value != value:
        return None
    return str(int(value)) if value == int(value) else repr(value)


def cell_numbers(column: pa.Array) -> Floats:
    """Cells as numbers, shape (n,); NaN where one is missing or none."""
    if pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_boolean(column.type):
        values = np.array(pc.fill_null(column.cast(pa.float64()), np.nan), dtype=np.float64)
    else:
        series = pd.Series(cell_texts(column), dtype=object)
        values = pd.to_numeric(series, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def cell_days(column: pa.Array) -> Floats:
    """Cells as days since 1970, shape (n,); NaN where one is missing or no date (ISO 8601)."""
    series = pd.Series(cell_texts(column), dtype=object)
    dates = pd.to_datetime(series, errors="coerce", format="ISO8601", utc=True)
    nanoseconds = dates.to_numpy("datetime64[ns]").astype(np.int64).astype(np.float64)
    return np.where(dates.isna(), np.nan, nanoseconds / 86_400e9)
