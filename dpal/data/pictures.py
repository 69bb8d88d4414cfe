"""Pictures as pixels: looked at before they are decoded, one by one, or refused in a sentence.

A PNG of a kilobyte may decode to gigabytes. What a picture's header says costs nothing, and is
compared with the shape that all records have before any pixel is made.
"""

from __future__ import annotations

import io
import math
import os
import struct
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from dpal.data.parquet import MOST_VALUES, RowNumbers, row_error
from dpal.errors import DataError

MOST_PIXELS = MOST_VALUES
DECODING_THREADS = min(8, os.cpu_count() or 1)  # more would wait for the interpreter's lock

Shape = tuple[int, ...]
Pixels = NDArray[np.uint8] | NDArray[np.uint16]

_FORMATS = ("PNG", "JPEG")  # no other of Pillow's readers ever sees a pool's bytes
# Modes by what becomes of them; Pillow itself brings 16 bits of colours to 8.
_GREY, _DEEP = ("1", "L"), ("I", "I;16", "I;16B", "I;16L")
_COLOUR = ("RGB", "RGBA", "RGBX", "LA", "P", "PA", "CMYK", "YCbCr")
_DROPPED_BITS = 8
# Of JPEG: how frames begin (bits, height, width, components) that Pillow decodes as they are, and
# segments that may come before and say nothing of them.
_FRAME, _FRAMES = struct.Struct(">BHHB"), frozenset((0xC0, 0xC1, 0xC2))
_BEFORE_FRAME = frozenset((0xDB, 0xC4, 0xDD, 0xFE, *range(0xE0, 0xF0)))
_JPEG_MODES = {1: "L", 3: "RGB"}
# Pixels that a thread must have to decode, and that threads may decode at once. Pictures of 28 x 28
# are decoded no faster by two threads, those of 64 x 64 in two thirds of the time.
_WORTH_A_THREAD, _AT_ONCE = 2**20, 2**25
_SIXTEEN_BITS = 0xFFFF
_PROMOTED = 257  # 255 of 8 bits is 65,535 of 16
_SIGNATURE, _GREY_OF_16_BITS = b"\x89PNG\r\n\x1a\n", bytes((16, 0))  # depth and kind of colour

# What Pillow says of large pictures is said here, as a refusal.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def decode_pictures(
    column: pa.Array,
    *,
    rows: RowNumbers | None,
    shape: Shape | None = None,
    deep: bool = False,
    threads: int = 1,
) -> Pixels:
    """Decodes pictures of one shape, each by itself.

    Args:
      column: their files, n of them, none null.
      rows: which rows they are, for messages; None where that is nobody's business.
      shape: what all must have; None takes the first one's.
      deep: whether all become 16 bits: those of 8 are scaled up. If not, 16 bits of grey lose
        the lower 8.
      threads: at most so many decode, where there is enough for each.

    Returns:
      (n, channels, height, width): one channel for grey pictures of 1, 8 or 16 bits, else three;
      uint16 where they are deep, else uint8.

    Raises:
      DataError: one cannot be read, is too large, or differs in shape; the first such one.
    """
    count = len(column)
    if count and shape is None:
        with _opened(column[0].as_py(), rows, 0) as picture:
            shape = _shape_of(picture)
    if not count or shape is None:
        return _blank(0, shape or (), deep=deep)
    pixels = _blank(count, shape, deep=deep)
    pixels_of_each = max(1, math.prod(shape[1:]))
    threads = max(1, min(threads, _AT_ONCE // pixels_of_each))
    share = max(-(-count // threads), _WORTH_A_THREAD // pixels_of_each, 1)

    def decode(first: int) -> None:
        for position in range(first, min(first + share, count)):
            pixels[position] = _decoded(column[position].as_py(), shape, rows, position, deep=deep)

    firsts = range(0, count, share)
    if len(firsts) == 1:
        decode(0)
    else:
        with ThreadPoolExecutor(len(firsts), thread_name_prefix="decoding") as pool:
            list(pool.map(decode, firsts))  # in order, so that the first error is raised
    return pixels


def _decoded(
    encoded: bytes, shape: Shape, rows: RowNumbers | None, position: int, *, deep: bool
) -> Pixels:
    """Pixels (*shape) of one picture, which must have this shape."""
    if not deep and (quickly := _plain_jpeg(encoded, shape)) is not None:
        return quickly
    with _opened(encoded, rows, position) as picture:
        here = _shape_of(picture)
        if here != shape:
            raise row_error(
                rows,
                position,
                "has an image of shape {here}, others have {others}; bring all images to one "
                "size and mode",
                here=here,
                others=shape,
            )
        return _pixels(picture, deep=deep)


def _blank(count: int, shape: Shape, *, deep: bool) -> Pixels:
    size = (count, *shape)
    return np.empty(size, np.uint16) if deep else np.empty(size, np.uint8)


def picture_shape(encoded: bytes) -> Shape | None:
    """The shape that a picture would have; None where it could not be read."""
    try:
        with _opened(encoded, None, 0) as picture:
            return _shape_of(picture)
    except DataError:
        return None


def is_deep(encoded: bytes) -> bool:
    """Whether a picture's header says 16 bits of grey: of PNG alone it can."""
    return encoded[:8] == _SIGNATURE and encoded[24:26] == _GREY_OF_16_BITS


@contextmanager
def _opened(encoded: bytes, rows: RowNumbers | None, position: int) -> Iterator[Image.Image]:
    """A picture of which no pixel is decoded yet."""
    try:
        with Image.open(io.BytesIO(encoded), formats=_FORMATS) as picture:
            width, height = picture.size
            if width * height > MOST_PIXELS:
                raise row_error(
                    rows,
                    position,
                    "has an image of {width} x {height} pixels, and at most "
                    f"{MOST_PIXELS:,} are read; bring it to a size that a model reads",
                    width=f"{width:,}",
                    height=f"{height:,}",
                )
            frames = getattr(picture, "n_frames", 1)
            if picture.format == "PNG" and frames > 1:
                raise row_error(rows, position, "has an animation; give it one image")
            if picture.mode not in (*_GREY, *_DEEP, *_COLOUR):
                raise row_error(
                    rows,
                    position,
                    "has an image of mode {mode}, which is not read; save it in grey or RGB with 8 "
                    "bits",
                    mode=picture.mode,
                )
            yield picture
    except DataError:
        raise
    except Exception as error:  # Pillow's readers raise nearly anything for what is altered
        if isinstance(error, Image.DecompressionBombError):
            raise row_error(
                rows,
                position,
                f"has an image of more than {MOST_PIXELS:,} pixels, the most that are read; bring "
                "it to a size that a model reads",
            ) from error
        raise row_error(
            rows, position, "holds no readable PNG or JPEG image; restore it"
        ) from error


def _plain_jpeg(encoded: bytes, shape: Shape) -> NDArray[np.uint8] | None:
    """Pixels of a JPEG of the shape that is expected, without what Pillow reads of it besides.

    That takes longer than to decode a small picture. None for whatever is not plain, for whoever
    decodes the others to look at.
    """
    frame = _frame_of(encoded)
    if frame is None or frame != shape:
        return None
    channels, height, width = frame
    mode = _JPEG_MODES[channels]
    try:
        picture = Image.frombytes(mode, (width, height), encoded, "jpeg", mode, "")
    except Exception:  # it is altered, which Pillow's reader says in its own way
        return None
    return np.asarray(picture, dtype=np.uint8).reshape(height, width, channels).transpose(2, 0, 1)


def _frame_of(encoded: bytes) -> Shape | None:
    """The shape in the header of a plain JPEG of 8 bits; None for anything else.

    Segment by segment, each where the last one ends, as the decoder goes: it finds the same frame.
    """
    place, last = 2, len(encoded) - 10
    if encoded[:2] != b"\xff\xd8":
        return None
    while place < last and encoded[place] == 0xFF:
        if (kind := encoded[place + 1]) in _FRAMES:
            bits, height, width, channels = _FRAME.unpack_from(encoded, place + 4)
            if bits != 8 or channels not in _JPEG_MODES or not 0 < width * height <= MOST_PIXELS:
                return None
            return (channels, height, width)
        if kind not in _BEFORE_FRAME:
            return None
        place += 2 + int.from_bytes(encoded[place + 2 : place + 4])
    return None


def _shape_of(picture: Image.Image) -> Shape:
    channels = 3 if picture.mode in _COLOUR else 1
    return (channels, picture.height, picture.width)


def _pixels(picture: Image.Image, *, deep: bool) -> Pixels:
    if picture.mode in _DEEP:
        levels = np.asarray(picture).clip(0, _SIXTEEN_BITS).astype(np.uint16)
        return levels[None] if deep else (levels >> _DROPPED_BITS).astype(np.uint8)[None]
    shallow = _shallow_pixels(picture)
    return shallow * np.uint16(_PROMOTED) if deep else shallow


def _shallow_pixels(picture: Image.Image) -> NDArray[np.uint8]:
    mode = "L" if picture.mode in _GREY else "RGB"
    array = np.asarray(picture if picture.mode == mode else picture.convert(mode), dtype=np.uint8)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
