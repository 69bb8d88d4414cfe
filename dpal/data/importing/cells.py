"""Cells of tables: which are missing, and what they are as numbers or texts.

One source writes 1, another 1.0 where a column has blanks; one True, another true. They are one
category, whatever the source.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from dpal.errors import DataError

# What stands for "nothing" in files that people make; upper and lower case alike.
MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none", "-", "."))

# Of these, what is an answer in a column of words: not insured is not the same as not recorded.
ANSWERS = frozenset(("none", "None", "NONE"))

_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0")  # not 250.00, which may be a code
_BOOLEANS = frozenset(("True", "TRUE", "False", "FALSE"))
_DAY = 86_400e6  # microseconds

# From here on nobody measured a number: it stands for a missing one, and squares of such overflow.
_NOT_MEASURED = 1e100

Floats = NDArray[np.float64]


def is_missing(text: str | None) -> bool:
    """Whether a cell says nothing."""
    return text is None or text.strip().lower() in MISSING


def cell_text(text: str | None, declared: Collection[str] = ()) -> str | None:
    """A cell that is a text, in the one form of what it says; None where it is missing.

    Args:
      text: the cell.
      declared: texts that somebody said are none of those that say nothing, and stay as they are.
    """
    if text is None or (text := text.strip()) in declared:
        return text
    if text.lower() in MISSING:
        return None
    if text.endswith(".0") and (whole := _WHOLE.fullmatch(text)):
        return "0" if whole.group(1) == "-0" else whole.group(1)
    return text.lower() if text in _BOOLEANS else text


def cell_texts(column: pa.Array, declared: Collection[str] = ()) -> list[str | None]:
    """Cells as texts, see `cell_text`."""
    return [cell_text(text, declared) for text in _as_written(column)]


def cell_names(column: pa.Array) -> list[str | None]:
    """Cells as names or texts that people read: trimmed; None where one is blank."""
    return [name_text(text) for text in _as_written(column)]


def name_text(text: str | None) -> str | None:
    """A name as it is written; None where it is blank."""
    return None if text is None else text.strip() or None


def _as_written(column: pa.Array) -> list[str | None]:
    """Cells as texts; None where there is none.

    Raises:
      DataError: one is no text in UTF-8.
    """
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pt.is_floating(column.type):
        return [_number_text(value) for value in column.to_pylist()]
    if pt.is_boolean(column.type):
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)):
        try:
            column = column.cast(pa.string())
        except pa.ArrowException as error:
            raise DataError(
                f"a column of type {column.type} holds what is no text; write it as text, or have "
                "dpal import leave it out (--leave-out)"
            ) from error
    texts: list[str | None] = column.to_pylist()
    return texts


def _number_text(value: float | None) -> str | None:
    if value is None or not math.isfinite(value):
        return None
    return str(int(value)) if value == int(value) else repr(value)


def cell_numbers(column: pa.Array) -> Floats:
    """Cells as numbers, shape (n,); NaN where one is missing, none, or too large to be measured."""
    return measurable(written_numbers(column))


def measurable(numbers: Floats) -> Floats:
    """The same numbers; NaN in place of those that are too large to be measured."""
    return np.where(np.abs(numbers) < _NOT_MEASURED, numbers, np.nan)


def written_numbers(column: pa.Array) -> Floats:
    """Cells as numbers of whatever size, shape (n,); NaN where one is missing or none."""
    if pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_boolean(column.type):
        return np.array(
            pc.fill_null(column.cast(pa.float64(), safe=False), np.nan), dtype=np.float64
        )
    import pandas as pd

    texts = np.array(cell_texts(column), dtype=object)
    return np.asarray(pd.to_numeric(texts, errors="coerce"), dtype=np.float64)


def cell_days(column: pa.Array) -> Floats:
    """Cells as days since 1970, shape (n,); NaN where one is missing or no date (ISO 8601)."""
    import pandas as pd

    # pandas takes `now` and `today` for the moment at which it reads them.
    texts = [t if t and (t[0].isdigit() or t[0] in "+-") else None for t in cell_texts(column)]
    series = pd.Series(texts, dtype=object)
    dates = pd.to_datetime(series, errors="coerce", format="ISO8601", utc=True)
    # Nanoseconds would end in 2262, and begin again in 1677.
    instants = dates.to_numpy("datetime64[us]").astype(np.int64).astype(np.float64)
    return np.where(dates.isna(), np.nan, instants / _DAY)


def given_among(column: pa.Array, chosen: NDArray[np.bool_]) -> int:
    """How many of the chosen cells are not missing."""
    if not chosen.any():
        return 0
    return sum(text is not None for text in cell_texts(column.filter(pa.array(chosen))))
