"""Pictures of whatever format, brought to PNG or JPEG of one form, one by one.

What is PNG or JPEG already, and need not be changed, keeps its bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps

from dpal.data.importing.importers import PART, Part, RawLabel
from dpal.data.importing.settings import PictureRule
from dpal.data.pictures import MOST_PIXELS, Shape, is_deep, picture_shape
from dpal.data.records import WORKERS
from dpal.errors import DataError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_KEPT = ("PNG", "JPEG")
_DEEP = ("I", "I;16", "I;16B", "I;16L")
_MOST_BYTES = 2**28  # of one file
_MOST_HELD = 2**28  # of files together, before a last one
_SHRUNK = 4  # times as many pixels are read of a picture that is made smaller
UNREADABLE = "pictures that cannot be read"
MISSING = "pictures that are not there"


def is_picture(path: Path) -> bool:
    """Whether a file's name says that it is a picture."""
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


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
            most = MOST_PIXELS if rule.size is None else _SHRUNK * MOST_PIXELS
            if picture.width * picture.height > most or picture.mode == "F":
                return None  # of fractions nobody knows which are black and white
            kept = picture.format in _KEPT and getattr(picture, "n_frames", 1) == 1
            picture.load()
            upright = _is_upright(picture)
            if kept and rule == PictureRule() and upright and not _is_clear(picture):
                return content
            return encoded(_shaped(picture if upright else ImageOps.exif_transpose(picture), rule))
    except Exception:  # Pillow's readers raise nearly anything for what is damaged
        return None


def _is_upright(picture: Image.Image) -> bool:
    """Whether pixels lie as they are to be seen: cameras only note how they were held."""
    with suppress(Exception):  # what is noted there may be damaged
        return bool(picture.getexif().get(ExifTags.Base.Orientation, 1) == 1)
    return True


def _is_clear(picture: Image.Image) -> bool:
    """Whether parts of a picture may be transparent, and hide colours that nobody sees."""
    return picture.mode not in _DEEP and picture.has_transparency_data


def _shaped(picture: Image.Image, rule: PictureRule) -> NDArray[Any]:
    """Pixels of a picture after the rule: grey of 8 or 16 bits, or RGB."""
    deep = picture.mode in _DEEP
    if not deep:
        grey = picture.mode in ("1", "L") if rule.grey is None else rule.grey
        if _is_clear(picture):
            ground = Image.new("RGBA", picture.size, "white")
            picture = Image.alpha_composite(ground, picture.convert("RGBA"))
        picture = picture.convert("L" if grey else "RGB")
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


@dataclass(frozen=True, kw_only=True)
class NamedPicture:
    """A picture before it is read.

    Attributes:
      id: its name.
      place: its file, or its bytes.
      label, split, group: as in `Part`.
    """

    id: str
    place: Path | bytes | None
    label: RawLabel = None
    split: str | None = None
    group: str | None = None


def picture_parts(pictures: Iterable[NamedPicture], rule: PictureRule) -> Iterator[Part]:
    """Reads pictures in the order given, several at once.

    Raises:
      DataError: two have different sizes, modes or depths, and no rule brings them to one.
    """
    form: tuple[Shape | None, bool] | None = None
    with ThreadPoolExecutor(WORKERS) as threads:
        for named in _together(pictures):
            contents = list(threads.map(lambda each: _read(each.place, rule), named))
            good = [position for position, content in enumerate(contents) if content]
            for position in good:
                content = contents[position] or b""
                here = picture_shape(content), is_deep(content)
                form = form or here
                if here != form:
                    raise _of_two_forms(form, here)
            missing = sum(_is_missing(each.place) for each in named)
            kept = [named[position] for position in good]
            files = pa.array([contents[position] for position in good], pa.binary())
            yield Part(
                ids=[each.id for each in kept],
                labels=[each.label for each in kept],
                splits=[each.split for each in kept],
                groups=[each.group for each in kept],
                records=pa.record_batch([files], ["image"]),
                dropped={MISSING: missing, UNREADABLE: len(named) - len(good) - missing},
            )


def _together(pictures: Iterable[NamedPicture]) -> Iterator[Sequence[NamedPicture]]:
    held: list[NamedPicture] = []
    size = 0
    for picture in pictures:
        held.append(picture)
        size += _size(picture.place)
        if len(held) == PART or size >= _MOST_HELD:
            yield held
            held, size = [], 0
    if held:
        yield held


def _size(place: Path | bytes | None) -> int:
    """Bytes of a picture's file; 0 where there is none."""
    if isinstance(place, bytes):
        return len(place)
    with suppress(OSError):
        return 0 if place is None else place.stat().st_size
    return 0


def _is_missing(place: Path | bytes | None) -> bool:
    return place is None or (isinstance(place, Path) and not place.is_file())


def _read(place: Path | bytes | None, rule: PictureRule) -> bytes | None:
    if isinstance(place, bytes):
        return prepared(place, rule)
    with suppress(OSError):
        if place is not None and place.is_file() and place.stat().st_size <= _MOST_BYTES:
            return prepared(place.read_bytes(), rule)
    return None


def _of_two_forms(one: tuple[Shape | None, bool], other: tuple[Shape | None, bool]) -> DataError:
    def words(shape: Shape | None, deep: bool) -> str:
        channels, height, width = shape or (0, 0, 0)
        grey = "grey of 16 bits" if deep else "grey"
        return f"{width}x{height} {grey if channels == 1 else 'RGB'}"

    _, height, width = one[0] or (0, 1, 1)
    depth = " (--rgb keeps 8 bits of all)" if one[1] is not other[1] else ""
    return DataError(
        "pictures differ ({one} and {other}), and a model reads one form; bring all to one with "
        f"--size WIDTHxHEIGHT, {{such}} (with --crop: without stretching), --grey or --rgb{depth}",
        one=words(*one),
        other=words(*other),
        such=f"such as {width}x{height}",
    )
