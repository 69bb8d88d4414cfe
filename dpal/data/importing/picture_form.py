"""One picture of whatever format, brought to PNG or JPEG of the form that was asked for.

What is PNG or JPEG already, and need not be changed, keeps its bytes.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps

from dpal.data.importing.settings import PictureRule
from dpal.data.pictures import MOST_PIXELS

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_KEPT = ("PNG", "JPEG")
_DEEP = ("I", "I;16", "I;16B", "I;16L")
_SHRUNK = 4  # times as many pixels are read of a picture that is made smaller


def encoded(pixels: NDArray[Any]) -> bytes:
    """A PNG of pixels: (height, width) of 8 or 16 bits, or (height, width, 3) of 8."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", compress_level=4)
    return stream.getvalue()


def prepared(content: bytes, rule: PictureRule) -> bytes | None:
    """A picture's file, brought to the form that was asked for.

    Returns:
      A PNG or JPEG file; None where the picture cannot be read or is too large.
    """
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
            if picture.width * picture.height > most_pixels(rule) or picture.mode == "F":
                return None  # of fractions nobody knows which are black and white
            kept = picture.format in _KEPT and getattr(picture, "n_frames", 1) == 1
            picture.load()
            upright = _is_upright(picture)
            if kept and rule == PictureRule() and upright and not _is_clear(picture):
                return content
            return encoded(shaped(picture if upright else ImageOps.exif_transpose(picture), rule))
    except Exception:  # Pillow's readers raise nearly anything for what is damaged
        return None


def most_pixels(rule: PictureRule) -> int:
    """How many pixels are read of a picture: more of one that is made smaller."""
    return MOST_PIXELS if rule.size is None else _SHRUNK * MOST_PIXELS


def _is_upright(picture: Image.Image) -> bool:
    """Whether pixels lie as they are to be seen: cameras only note how they were held."""
    with suppress(Exception):  # what is noted there may be damaged
        return bool(picture.getexif().get(ExifTags.Base.Orientation, 1) == 1)
    return True


def _is_clear(picture: Image.Image) -> bool:
    """Whether parts of a picture may be transparent, and hide colours that nobody sees."""
    return picture.mode not in _DEEP and picture.has_transparency_data


def shaped(picture: Image.Image, rule: PictureRule) -> NDArray[Any]:
    """Pixels of a picture after the rule: grey of 8 or 16 bits, or RGB."""
    deep = picture.mode in _DEEP
    if not deep:
        grey = picture.mode in ("1", "L") if rule.grey is None else rule.grey
        if _is_clear(picture):
            ground = Image.new("RGBA", picture.size, "white")
            picture = Image.alpha_composite(ground, picture.convert("RGBA"))
        picture = picture.convert("L" if grey else "RGB")
    elif picture.mode == "I":
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise ValueError("beyond 16 bits: cut off there, it would be another picture")
    if rule.crop and rule.size is not None:
        picture = picture.crop(_middle(picture.size, rule.size))
    if rule.size is not None and picture.size != rule.size:
        mode = picture.convert("F") if deep else picture
        picture = mode.resize(rule.size, Image.Resampling.LANCZOS)
    pixels = np.asarray(picture)
    if not deep:
        return pixels
    shift = 16 - (rule.bits or 16)
    levels = np.rint(pixels.astype(np.float64)).clip(0, 0xFFFF >> shift).astype(np.uint16)
    levels = levels << np.uint16(shift)
    if rule.grey is not False:
        return levels
    return np.repeat((levels >> np.uint16(8)).astype(np.uint8)[:, :, None], 3, axis=2)


def _middle(size: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, int, int, int]:
    """The largest middle part of a picture that has the wanted shape."""
    width, height = size
    scale = min(width / wanted[0], height / wanted[1])
    across, down = round(wanted[0] * scale), round(wanted[1] * scale)
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down
