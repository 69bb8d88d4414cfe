"""Pictures: the same by their pixels, alike by their low frequencies.

The same are pictures that decode to the same pixels at the same size; three equal channels are
one grey one. Alike are pictures whose luminance has nearly the same cosine transform. Taken as
means over the picture, its coefficients hardly depend on the number of pixels; what recompression
changes is small beside what tells two pictures apart, and a blur, as by resizing, changes all of
them in a way that is known, and is fitted and taken out before two pictures are compared.

Sources:
  Cosine transform of a thumbnail as a fingerprint: Zauner (2010), Implementation and
  Benchmarking of Perceptual Image Hash Functions, Sec. 3.2.1. Its 64 bits cannot tell apart
  handwritten digits; here the coefficients themselves are kept.
  Taking out a known direction: Simard, LeCun & Denker (1993), tangent distance.
  Constants: chosen on half of each data set of docs/recognition.md, measured on the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from dpal.data.likeness.record_sketches import NOBODY, Described, Rows, Sketches, SketchRows
from dpal.data.parquet import RowNumbers
from dpal.data.readers import decode
from dpal.data.sources import Content

WAY = "picture-1"
SALTED, NEAREST = False, True

Floats = NDArray[np.float32]

_ORDERS = 12  # of each axis; together below this
_AXIS = np.arange(_ORDERS)
# (78,) frequencies down and across, lowest first.
_DOWN, _ACROSS = np.array(
    sorted(((u, v) for u in _AXIS for v in _AXIS if u + v < _ORDERS), key=sum), dtype=np.intp
).T
_ORDER = _DOWN + _ACROSS
_ON_AXIS = (_DOWN == 0) | (_ACROSS == 0)
WIDTH = _ORDER.size + 1  # a byte each, and one for the size

# A byte holds 127 steps up and down: finer where coefficients are smaller.
_STEPS = (np.maximum(_ORDER, 1) ** -0.6).astype(np.float32)
_STEPS[0] = 1.0
_MIDDLE = 128.0  # of the mean grey
# JPEG moves means of its blocks, hence the mean and the axes, more than the rest.
_WEIGHTS = (np.maximum(_ORDER, 1) ** 0.3 * np.where(_ON_AXIS, 0.6, 1.0)).astype(np.float32)
_WEIGHTS[0] = 0.2
# A little blur takes away from a coefficient in proportion to itself and to this.
_BLUR = (_DOWN**2 + _ACROSS**2).astype(np.float32)
_MOST_BLUR = 0.006  # of 16 x 16 pixels made 15 x 15
_TOLERANCE = 1.55
# What copying changes grows slowly with what there is to change, off the axes: a straight
# stroke stays one, and may be told from other straight strokes by little.
_GROWTH = 0.3
# In pictures of fewer pixels the rounding of each has a larger part.
_FULL_SIDE = 28.0

_LOW = (_BLUR > 0) & (_BLUR <= 10)  # enough to rule nearly all pairs out
_SLACK = 0.1  # of single precision there
_CLOSEST = 256  # of many that are nearly the same, such as the pictures of a film
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601, as JPEG has it

_VALUES_AT_ONCE = 1 << 22  # of decoded pixels
_KNOWN_AT_ONCE, _NEW_AT_ONCE, _PAIRS_AT_ONCE = 1 << 15, 1 << 9, 1 << 15


def describe(column: pa.Array, *, rows: RowNumbers | None, salt: bytes) -> Described:
    """Decodes pictures, a few at a time where they are large.

    Args:
      column: n encoded pictures of one size.
      rows: which rows they are, for messages; None where that is nobody's business.
      salt: has no part in this; index files are encrypted under it.

    Raises:
      DataError: one is missing, cannot be read, or differs in shape from the first.
    """
    contents: list[bytes] = []
    sketches, telling = [np.zeros((0, WIDTH), np.uint8)], [np.zeros(0, bool)]
    for pixels in _decoded(column, rows):
        contents += _contents(pixels)
        sketches.append(_sketches(pixels))
        small = min(pixels.shape[2:]) < _ORDERS
        plain = np.ptp(pixels, axis=(1, 2, 3)) == 0
        telling.append(~plain if small else sketches[-1][:, -1] > 0)
    return Described(contents, np.concatenate(sketches), np.concatenate(telling))


def contents(column: pa.Array, decoded: Tensor, *, rows: RowNumbers | None) -> Iterator[bytes]:
    """Bytes that two pictures share exactly when they are the same, at 8 bits.

    Args:
      column: n encoded pictures.
      decoded: (n, channels, height, width) uint8, or uint16.
      rows: has no part in this.
    """
    pixels = decoded.numpy()
    return _contents(pixels if pixels.dtype == np.uint8 else (pixels >> 8).astype(np.uint8))


def find(known_sketches: SketchRows, new: Sketches) -> Rows:
    """For each new picture the known one that is most alike, -1 where none is a copy.

    Time: a scalar product of 12 numbers for every pair; memory: tens of MiB.

    Args:
      known_sketches: (m, WIDTH)
      new: (n, WIDTH)

    Returns:
      (n,) rows of `known_sketches`.
    """
    matches = np.full(len(new), NOBODY, np.intp)
    nearest = np.full(len(new), np.inf, np.float32)
    comparable = np.flatnonzero(new[:, -1])
    for begin in range(0, len(known_sketches), _KNOWN_AT_ONCE):
        some = _Known(known_sketches[begin : begin + _KNOWN_AT_ONCE])
        for start in range(0, comparable.size, _NEW_AT_ONCE):
            rows = comparable[start : start + _NEW_AT_ONCE]
            for new_rows, among, distances in some.alike(new[rows]):
                # The last one written stays: the nearest.
                order = np.argsort(-distances, kind="stable")
                new_rows, among, distances = rows[new_rows[order]], among[order], distances[order]
                nearer = distances < nearest[new_rows]
                nearest[new_rows[nearer]] = distances[nearer]
                matches[new_rows[nearer]] = begin + among[nearer]
    return matches


class _Known:
    """Known pictures, with how far from each a copy may be."""

    def __init__(self, sketches: Sketches) -> None:
        values, self._side = _values(sketches), _sides(sketches)
        off_axes = np.sqrt((values[:, ~_ON_AXIS] ** 2).sum(axis=1))
        self._tolerance = _TOLERANCE * off_axes**_GROWTH
        self._points = values * _WEIGHTS
        self._blur = self._points * _BLUR
        self._blur_squared = np.maximum((self._blur**2).sum(axis=1), np.float32(1e-9))
        self._low = self._points[:, _LOW]
        self._low_blur = _MOST_BLUR * np.sqrt((self._blur[:, _LOW] ** 2).sum(axis=1)) + _SLACK

    def alike(self, new: Sketches) -> Iterator[tuple[Rows, Rows, Floats]]:
        """Yields pairs: rows of `new`, rows of these, and distances as shares of the allowed."""
        points, sides = _values(new) * _WEIGHTS, _sides(new)
        low = points[:, _LOW]
        # Whatever the blur, a copy is no further away than this on some of the axes.
        reach = self._tolerance * _enlarged(np.minimum(sides.min(), self._side)) + self._low_blur
        within = low @ self._low.T
        within -= ((self._low**2).sum(axis=1) - reach**2) / 2
        within -= ((low**2).sum(axis=1) / 2)[:, None]
        possible = within >= 0
        for row in np.flatnonzero(possible.sum(axis=1) > _CLOSEST):
            closest = np.argpartition(within[row], -_CLOSEST)[-_CLOSEST:]
            possible[row] = False
            possible[row, closest] = True
        new_rows, among = np.nonzero(possible)
        for start in range(0, new_rows.size, _PAIRS_AT_ONCE):
            pairs = slice(start, start + _PAIRS_AT_ONCE)
            yield self._close(points, sides, new_rows[pairs], among[pairs])

    def _close(
        self, points: Floats, sides: Floats, new_rows: Rows, among: Rows
    ) -> tuple[Rows, Rows, Floats]:
        apart, blur = points[new_rows] - self._points[among], self._blur[among]
        fitted = (apart * blur).sum(axis=1) / self._blur_squared[among]
        apart -= np.clip(fitted, -_MOST_BLUR, _MOST_BLUR)[:, None] * blur
        side = np.minimum(sides[new_rows], self._side[among])
        allowed = self._tolerance[among] * _enlarged(side)
        distances = np.sqrt((apart**2).sum(axis=1))
        close = distances < allowed
        shares = (distances[close] / allowed[close]).astype(np.float32)
        return new_rows[close], among[close], shares


def _decoded(column: pa.Array, rows: RowNumbers | None) -> Iterator[NDArray[np.uint8]]:
    start, count = 0, 1  # the first one tells how large they are
    while start < len(column):
        part = column.slice(start, count)
        pixels = decode(Content.IMAGE, part, rows=rows and rows.slice(start, count)).numpy()
        yield pixels
        start += count
        count = max(1, _VALUES_AT_ONCE // pixels[0].size)


def _contents(pixels: NDArray[np.uint8]) -> Iterator[bytes]:
    """Pixels of pictures (n, channels, height, width), of one channel where all are equal."""
    equal = (pixels == pixels[:, :1]).all(axis=(1, 2, 3))
    for picture, grey in zip(pixels, equal, strict=True):
        shown = picture[:1] if grey else picture
        yield repr(shown.shape).encode() + shown.tobytes()


def _sketches(pixels: NDArray[np.uint8]) -> Sketches:
    count, channels, height, width = pixels.shape
    if min(height, width) < _ORDERS:
        return np.zeros((count, WIDTH), np.uint8)  # frequencies that it cannot have
    light = pixels[:, 0].astype(np.float32)
    if channels == 3:
        light = np.einsum("c,nchw->nhw", _LUMINANCE, pixels, optimize=True)
    whole = np.matmul(np.matmul(_cosines(height), light), _cosines(width).T)
    values = whole[:, _DOWN, _ACROSS]
    values[:, 0] -= _MIDDLE
    steps = np.clip(np.round(values / _STEPS), -127, 127).astype(np.int8)
    sketches = np.empty((count, WIDTH), np.uint8)
    sketches[:, :-1] = steps.view(np.uint8)
    sketches[:, -1] = np.clip(np.round(8 * np.sqrt(height * width)), 1, 255)
    # A plain picture, such as an empty scan, is like every other.
    sketches[~steps[:, ~_ON_AXIS].any(axis=1)] = 0
    return sketches


@lru_cache(maxsize=16)
def _cosines(side: int) -> Floats:
    """Cosines of `_ORDERS` frequencies at the middles of pixels, (_ORDERS, side); means."""
    places = (np.arange(side) + 0.5) / side
    waves = np.cos(np.pi * np.outer(_AXIS, places)) * np.where(_AXIS == 0, 1, np.sqrt(2))[:, None]
    return np.asarray(waves / side, dtype=np.float32)


def _values(sketches: Sketches) -> Floats:
    values: Floats = np.ascontiguousarray(sketches[:, :-1]).view(np.int8) * _STEPS
    return values


def _sides(sketches: Sketches) -> Floats:
    """Side of a square with as many pixels; 32 for all that are larger."""
    return sketches[:, -1] * np.float32(1 / 8)


def _enlarged(side: Floats) -> Floats:
    return np.asarray(np.maximum(_FULL_SIDE / np.maximum(side, 1), 1), dtype=np.float32)
