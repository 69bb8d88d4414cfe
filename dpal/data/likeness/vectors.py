"""Feature vectors: the same by their values, alike up to the last bits.

Two vectors are alike when eight secret projections of them are. A grid would part neighbours
wherever a value lies at the edge of a cell; an interval around a projection parts nobody.
Values enter by their logarithm, so that a last bit weighs the same in a column of ages and in one
of incomes. Copies change each value by a few units in the last place of single precision; vectors
that differ more in any one value are two.

Source:
  Random projections keep distances: Johnson & Lindenstrauss (1984); with weights that are not
  normal: Achlioptas (2003), Database-friendly random projections.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from dpal.data.likeness.enumerate_pairs import pairs_in
from dpal.data.likeness.record_sketches import NOBODY, Described, Rows, Sketches, SketchRows
from dpal.data.parquet import RowNumbers
from dpal.data.readers import decode
from dpal.data.sources import Content

WAY = "vector-1"
SALTED, NEAREST = True, False

_PROJECTIONS = 8
WIDTH = 4 * _PROJECTIONS
_SMALLEST = 2.0**-126  # below it single precision has steps of one size, and so has the scale
_LAST_PLACES = 2.0**-21  # four units in the last place, at most
_STANDARD_DEVIATIONS = 5.0  # of a projection, if all values moved that far
_STEPS = 4  # that projections of two copies may lie apart
_PAIRS_AT_ONCE = 1 << 20


def describe(column: pa.Array, *, rows: RowNumbers | None, salt: bytes) -> Described:
    """Reads feature vectors.

    Args:
      column: n lists of one length.
      rows: which rows they are, for messages; None where that is nobody's business.
      salt: the secret under which they are projected.

    Raises:
      DataError: a value is missing, NaN or infinite, or lengths differ.
    """
    decoded = decode(Content.FEATURES, column, rows=rows)
    values = _values(decoded)
    weights = _weights(salt, values.shape[1])
    projected = np.arcsinh(values / np.float64(_SMALLEST)) @ weights
    allowed = _STANDARD_DEVIATIONS * _LAST_PLACES * np.sqrt(values.shape[1] / 3)
    steps = np.round(projected * (_STEPS / allowed))  # some 2^28 at most; 2^31 is room enough
    steps = np.clip(steps, -(2**31), 2**31 - 1).astype("<i4")
    sketches = steps.view(np.uint8).reshape(len(values), WIDTH)
    told = np.ones(len(values), bool)
    return Described(list(contents(column, decoded, rows=rows)), sketches, told)


def contents(column: pa.Array, decoded: Tensor, *, rows: RowNumbers | None) -> Iterator[bytes]:
    """Bytes that two vectors share exactly when they are the same.

    Args:
      column: n lists of one length.
      decoded: (n, width) float32.
      rows: has no part in this.
    """
    return (vector.tobytes() for vector in _values(decoded))


def find(known_sketches: SketchRows, new: Sketches) -> Rows:
    """For each new vector the first known one that is alike, -1 where none is.

    Args:
      known_sketches: (m, WIDTH)
      new: (n, WIDTH)

    Returns:
      (n,) rows of `known_sketches`.
    """
    there, here = _steps(known_sketches[:]), _steps(new)
    order = np.argsort(there[:, 0], kind="stable")
    sorted_first = there[order, 0]
    begin = np.searchsorted(sorted_first, here[:, 0] - _STEPS, side="left")
    end = np.searchsorted(sorted_first, here[:, 0] + _STEPS, side="right")
    matches = np.full(len(new), len(known_sketches), np.intp)
    for new_rows, places in pairs_in(begin, end, _PAIRS_AT_ONCE):
        among = order[places]
        close = (np.abs(there[among] - here[new_rows]) <= _STEPS).all(axis=1)
        np.minimum.at(matches, new_rows[close], among[close])
    return np.where(matches == len(known_sketches), NOBODY, matches)


def _values(decoded: Tensor) -> NDArray[np.float32]:
    # Adding zero makes -0.0 the same as 0.0.
    values: NDArray[np.float32] = decoded.numpy() + np.float32(0)
    return values


def _steps(sketches: Sketches) -> NDArray[np.int64]:
    return np.ascontiguousarray(sketches).view("<i4").astype(np.int64)


@lru_cache(maxsize=4)
def _weights(salt: bytes, width: int) -> NDArray[np.float64]:
    """(width, _PROJECTIONS) numbers in [-1, 1), the same for ever for one salt and width."""
    drawn = hashlib.shake_256(salt + b"dpal.vector-1" + width.to_bytes(8, "little"))
    numbers = np.frombuffer(drawn.digest(4 * width * _PROJECTIONS), "<u4")
    return (numbers / 2.0**31 - 1.0).reshape(width, _PROJECTIONS)
