"""Pictures of whatever format, several read at once, all brought to one form (`picture_form`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dpal.data.importing.importers import PART, Part, RawLabel
from dpal.data.importing.picture_form import prepared
from dpal.data.importing.settings import PictureRule
from dpal.data.pictures import Shape, is_deep, picture_shape
from dpal.data.records import WORKERS
from dpal.errors import DataError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")

_MOST_BYTES = 2**28  # of one file
_MOST_HELD = 2**28  # of files together, before a last one
UNREADABLE = "pictures that cannot be read"
MISSING = "pictures that are not there"


def is_picture(path: Path) -> bool:
    """Whether a file's name says that it is a picture."""
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


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
