"""Pictures of whatever format, several read at once, all brought to one form (`picture_form`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dpal.data.importing.dicom import DICOM_ENDINGS, NotRead, is_dicom, prepared_dicom
from dpal.data.importing.file_names import require_text
from dpal.data.importing.importers import PART, Part, RawLabel
from dpal.data.importing.parts import is_of_part
from dpal.data.importing.picture_form import prepared
from dpal.data.importing.settings import ImportSettings, PictureRule
from dpal.data.pictures import DECODING_THREADS, Shape, is_deep, picture_shape
from dpal.errors import DataError

ENDINGS = (
    ".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm",
    *DICOM_ENDINGS,
)  # fmt: skip

_MOST_BYTES = 2**28  # of one file
_MOST_HELD = 2**28  # of files together, before a last one
UNREADABLE = "pictures that cannot be read"
MISSING = "pictures that are not there, or whose name without a folder several files have"


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
      asked: False where it is of a row that nobody asked for.
    """

    id: str
    place: Path | bytes | None
    label: RawLabel = None
    split: str | None = None
    group: str | None = None
    asked: bool = True

    def __post_init__(self) -> None:
        require_text(self.id)


def picture_parts(
    pictures: Iterable[NamedPicture], settings: ImportSettings, *, any_size: bool = False
) -> Iterator[Part]:
    """Reads pictures in the order given, several at once; those that nobody asked for stay closed.

    Args:
      pictures: their files.
      settings: the form that all are brought to, and the part that is wanted.
      any_size: whether sizes and modes may differ, for whoever knows the one that is wanted.

    Raises:
      DataError: two have different sizes, modes or depths, and no rule brings them to one.
    """
    form: tuple[Shape | None, bool] | None = None
    rule, value_range = settings.picture_rule, settings.value_range
    with ThreadPoolExecutor(DECODING_THREADS) as threads:
        for named, aside in _together(pictures, settings.part):
            contents = list(threads.map(lambda each: _read(each.place, rule, value_range), named))
            kept, files, dropped = list[NamedPicture](), list[bytes](), Counter[str]()
            for each, content in zip(named, contents, strict=True):
                if isinstance(content, str):
                    dropped[content] += 1
                    continue
                here = picture_shape(content), is_deep(content)
                form = form or here
                if here[1] is not form[1] or (here != form and not any_size):
                    raise _of_two_forms(form, here, settings)
                kept.append(each)
                files.append(content)
            yield Part(
                ids=[each.id for each in kept],
                labels=[each.label for each in kept],
                splits=[each.split for each in kept],
                groups=[each.group for each in kept],
                records=pa.record_batch([pa.array(files, pa.binary())], ["image"]),
                dropped=dropped,
                aside=aside,
            )


def _together(
    pictures: Iterable[NamedPicture], part: str | None
) -> Iterator[tuple[Sequence[NamedPicture], Counter[str]]]:
    """Pictures that are held at a time, and how many of each part nobody asked for."""
    held, aside, size = list[NamedPicture](), Counter[str](), 0
    for picture in pictures:
        if not picture.asked or not is_of_part(picture.split, part):
            aside[picture.split or ""] += 1
            continue
        held.append(picture)
        size += _size(picture.place)
        if len(held) == PART or size >= _MOST_HELD:
            yield held, aside
            held, aside, size = [], Counter[str](), 0
    if held or aside:
        yield held, aside


def _size(place: Path | bytes | None) -> int:
    """Bytes of a picture's file; 0 where there is none."""
    if isinstance(place, bytes):
        return len(place)
    with suppress(OSError):
        return 0 if place is None else place.stat().st_size
    return 0


def _read(
    place: Path | bytes | None, rule: PictureRule, value_range: tuple[float, float] | None
) -> bytes | str:
    """A picture in the form that was asked for, or the reason why there is none."""
    try:
        if isinstance(place, bytes):
            return _formed(place, rule, value_range) or UNREADABLE
        if place is None or not place.is_file():
            return MISSING
        if place.stat().st_size <= _MOST_BYTES:
            return _formed(place.read_bytes(), rule, value_range) or UNREADABLE
    except NotRead as why:
        return str(why)
    except OSError:
        pass
    return UNREADABLE


def _formed(
    content: bytes, rule: PictureRule, value_range: tuple[float, float] | None
) -> bytes | None:
    if is_dicom(content):
        return prepared_dicom(content, rule, value_range)
    return prepared(content, rule)


def form_in_words(shape: Shape | None, *, deep: bool = False) -> str:
    """Size and colours of a picture, such as 24x24 RGB."""
    channels, height, width = shape or (0, 0, 0)
    grey = "grey of 16 bits" if deep else "grey"
    return f"{width}x{height} {grey if channels == 1 else 'RGB'}"


def _of_two_forms(
    one: tuple[Shape | None, bool], other: tuple[Shape | None, bool], settings: ImportSettings
) -> DataError:
    words = [form_in_words(shape, deep=deep) for shape, deep in (one, other)]
    if settings.whole:
        return DataError(
            "pictures differ ({one} and {other}), and a model reads one depth; write all with as "
            "many bits as those that it learned from",
            one=words[0],
            other=words[1],
        )
    _, height, width = one[0] or (0, 1, 1)
    depth = " (--rgb keeps 8 bits of all)" if one[1] is not other[1] else ""
    return DataError(
        "pictures differ ({one} and {other}), and a model reads one form; bring all to one with "
        f"--size WIDTHxHEIGHT, {{such}} (with --crop: without stretching), --grey or --rgb{depth}",
        one=words[0],
        other=words[1],
        such=f"such as {width}x{height}",
    )
