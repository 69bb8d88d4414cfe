"""Arrays of NumPy: pictures or features, and labels, as `.npz` (MedMNIST, Keras, own) or `.npy`.

Records are read some at a time, labels as a whole.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpal.data.importing.cells import cell_text
from dpal.data.importing.importers import PART, OpenedSource, Part, RawLabel, Several
from dpal.data.importing.picture_files import NamedPicture, picture_parts
from dpal.data.importing.picture_form import encoded
from dpal.data.importing.settings import ImportSettings
from dpal.data.parquet import reading
from dpal.data.sources import Content
from dpal.errors import DataError

_RECORDS = ("images", "image", "x", "data", "features", "arr_0")
_LABELS = ("labels", "label", "y", "target", "targets", "arr_1")
_PARTS = ("train", "test", "val", "valid", "validation")
_AT_ONCE = 2**22  # bytes of records that are read at a time
_ADVICE = "write numbers, no Python objects, into it"

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Arrays of one part of a file.

    Attributes:
      name: before the number of a record in its name.
      split: the part, in the file's own word.
      records, labels: names of the arrays; of labels None where there are none.
    """

    name: str
    split: str | None
    records: str
    labels: str | None


def open_arrays(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a file of arrays.

    Raises:
      DataError: it cannot be read, holds Python objects, or has no array of records.
    """
    blocks = _blocks(place)
    shapes = {block.name: _shape(place, block.records) for block in blocks}
    shape, kind = next(iter(shapes.values()))
    if len(shape) < 2:
        raise DataError(
            f"{place} has records of shape {shape}; they are (n, features), (n, height, width) or "
            "(n, height, width, 3)"
        )
    for shown, kind in shapes.values():
        _require_records(place, shown, kind)
    if len({each[1:] if len(each) == 2 else len(each) for each, _ in shapes.values()}) > 1:
        raise DataError(f"the parts of {place} have records of different shapes; give all one")
    pictures = len(shape) > 2
    if pictures and kind.kind == "f" and settings.value_range is None:
        raise DataError(
            f"{place} has pictures of fractions; tell dpal import which range is black to white, "
            "such as --range 0:1, since reading it off would tell of single records"
        )

    def parts() -> Iterator[Part]:
        if pictures:
            named = (each for block in blocks for each in _named(place, block, settings))
            yield from picture_parts(named, settings)
        else:
            for block in blocks:
                yield from _features(place, block, settings)

    return OpenedSource(
        content=Content.IMAGE if pictures else Content.FEATURES,
        parts=parts,
        classes=settings.classes or _label_names(place, blocks),
        has_splits=any(block.split for block in blocks),
        about=f"arrays of shape {shape}, {kind}",
    )


def _require_records(place: Path, shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
    """Requires numbers in a shape that is known; texts would be quoted by whoever reads them."""
    if kind.kind not in "biuf":
        raise DataError(f"{place} has records of type {kind}; they are whole numbers or fractions")
    channels = shape[-1] if len(shape) == 4 else 1
    ahead = shape[1] if len(shape) == 4 else 1
    if len(shape) > 4 or 0 in shape[1:] or (channels not in (1, 3) and ahead not in (1, 3)):
        raise DataError(
            f"{place} has records of shape {shape}; they are (n, features), (n, height, width) or "
            "(n, height, width, 3)"
        )


def _label_names(place: Path, blocks: list[_Block]) -> tuple[str, ...]:
    """Names of several labels a record: as many as an array of them is wide."""
    shapes = [_shape(place, block.labels)[0] for block in blocks if block.labels]
    wide = len(shapes[0]) == 2 and shapes[0][1] > 1 if shapes else False
    return tuple(map(str, range(shapes[0][1]))) if wide else ()


def _blocks(place: Path) -> list[_Block]:
    if place.suffix.lower() == ".npy":
        return [_Block(name=place.stem, split=None, records="", labels=None)]
    with reading(place), zipfile.ZipFile(place) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    found = []
    for part in (None, *_PARTS):
        records = _array(names, part, _RECORDS)
        if records is not None:
            labels = _array(names, part, _LABELS)
            found.append(
                _Block(name=part or place.stem, split=part, records=records, labels=labels)
            )
    divided = [block for block in found if block.split]
    if not found:
        raise DataError(
            f"{place} has the arrays {', '.join(names)}, and none is called images, x, data or "
            "features (or train_images, x_train ...); name it so"
        )
    return divided or found


def _array(names: list[str], part: str | None, words: tuple[str, ...]) -> str | None:
    """The array of a part: train_images, x_train, X."""
    lower = {name.lower(): name for name in names}
    for word in words:
        for written in (word,) if part is None else (f"{part}_{word}", f"{word}_{part}"):
            if written in lower:
                return lower[written]
    return None


def _load(place: Path, name: str) -> Array:
    with reading(place, _ADVICE):
        loaded = np.load(place, allow_pickle=False)
        array: Array = loaded if isinstance(loaded, np.ndarray) else loaded[name]
    return array


def _rows(place: Path, name: str) -> Iterator[Array]:
    """The records of an array in their order, some at a time."""
    with reading(place, _ADVICE), _opened(place, name) as stream:
        shape, by_column, kind = _header(stream)
        if by_column:  # a record's numbers lie all over the file
            yield _load(place, name)
            return
        size = math.prod(shape[1:]) * kind.itemsize
        at_once = min(8 * PART, max(1, _AT_ONCE // size))
        for first in range(0, shape[0], at_once):
            count = min(at_once, shape[0] - first)
            content = stream.read(count * size)
            yield np.frombuffer(content, kind).reshape(count, *shape[1:])


def _shape(place: Path, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type by an array's header alone."""
    with reading(place, _ADVICE), _opened(place, name) as stream:
        shape, _, kind = _header(stream)
    return shape, kind


@contextmanager
def _opened(place: Path, name: str) -> Iterator[IO[bytes]]:
    """The stored array of a name, or that of a `.npy` file."""
    if place.suffix.lower() == ".npy":
        with place.open("rb") as stream:
            yield stream
        return
    with zipfile.ZipFile(place) as archive, archive.open(f"{name}.npy") as stream:
        yield stream


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is stored column by column, and type."""
    version = np.lib.format.read_magic(stream)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    return read(stream)


class _Labels:
    """Labels of n records: (n,) or (n, 1) classes, or (n, labels) of 0, 1 and -1.

    Raises:
      DataError: they are something else.
    """

    def __init__(self, place: Path, block: _Block, count: int, settings: ImportSettings) -> None:
        self._place, self._settings = place, settings
        self._array: Array | None = None
        if block.labels is None or settings.whole:
            return
        array = _load(place, block.labels)
        if array.ndim not in (1, 2) or array.dtype.kind not in "biufSU":
            raise DataError(
                f"{place} has labels of shape {array.shape} and type {array.dtype}; they are one "
                "class a record, (n,), or 0, 1 and -1 of several labels, (n, labels)"
            )
        if len(array) != count:
            raise DataError(f"{place} has {count:,} records and {len(array):,} labels of them")
        self._array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array

    def of(self, first: int, count: int) -> list[RawLabel]:
        """Labels of some records."""
        if self._array is None:
            return [None] * count
        rows = self._array[first : first + count]
        if rows.ndim == 1:
            return _classes(self._place, rows)
        return _several(self._place, rows, self._settings)


def _classes(place: Path, array: Array) -> list[RawLabel]:
    if array.dtype.kind == "S":
        with reading(place, "write names of classes in UTF-8"):
            return [cell_text(each.decode()) for each in array.tolist()]
    if array.dtype.kind != "f":
        return [cell_text(str(each)) for each in array.tolist()]
    known = np.isfinite(array)
    if (array[known] != np.rint(array[known])).any():
        raise DataError(
            f"{place} has labels that are fractions; a class is a whole number or a name"
        )
    pairs = zip(array.tolist(), known.tolist(), strict=True)
    return [str(int(value)) if whole else None for value, whole in pairs]


def _several(place: Path, array: Array, settings: ImportSettings) -> list[RawLabel]:
    names = settings.classes or tuple(map(str, range(array.shape[1])))
    if len(names) != array.shape[1]:
        raise DataError(
            f"{place} has {array.shape[1]} labels a record, and {len(names)} names of them"
        )
    numbers = array.dtype.kind in "biuf"
    values = np.where(np.isnan(array), -1, array) if array.dtype.kind == "f" else array
    if not (numbers and np.isin(values, (-1, 0, 1)).all()):
        raise DataError(
            f"{place} has several labels a record, and one of them is neither 0, 1 nor -1"
        )
    return [
        Several(
            tuple(name for name, value in zip(names, row, strict=True) if value == 1),
            tuple(name for name, value in zip(names, row, strict=True) if value == -1),
        )
        for row in values.astype(np.int8).tolist()
    ]


def _named(place: Path, block: _Block, settings: ImportSettings) -> Iterator[NamedPicture]:
    count = _shape(place, block.records)[0][0]
    labels, position = _Labels(place, block, count, settings), 0
    for rows in _rows(place, block.records):
        said = labels.of(position, len(rows))
        for pixels, label in zip(rows, said, strict=True):
            yield NamedPicture(
                id=f"{block.name}-{position}",
                place=_as_png(place, pixels, settings),
                label=label,
                split=block.split,
            )
            position += 1


def _as_png(place: Path, pixels: Array, settings: ImportSettings) -> bytes:
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] not in (1, 3):
        pixels = np.moveaxis(pixels, 0, 2)  # channels first
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if settings.value_range is not None:
        low, high = settings.value_range
        shares = ((pixels.astype(np.float64) - low) / (high - low)).clip(0, 1)
        pixels = np.rint(255 * np.nan_to_num(shares)).astype(np.uint8)
    elif pixels.dtype.kind == "b":
        pixels = np.where(pixels, np.uint8(255), np.uint8(0))
    elif pixels.dtype != np.uint8 and not (pixels.dtype == np.uint16 and pixels.ndim == 2):
        if pixels.min() < 0 or pixels.max() > 255:
            raise DataError(
                f"{place} has pictures of {pixels.dtype} beyond 0 to 255; tell dpal import which "
                "range is black to white, such as --range 0:4095"
            )
        pixels = pixels.astype(np.uint8)
    return encoded(np.ascontiguousarray(pixels))


def _features(place: Path, block: _Block, settings: ImportSettings) -> Iterator[Part]:
    count = _shape(place, block.records)[0][0]
    labels, first = _Labels(place, block, count, settings), 0
    for stored in _rows(place, block.records):
        for begin in range(0, len(stored), 8 * PART):  # all at once where stored by column
            rows = np.ascontiguousarray(stored[begin : begin + 8 * PART], dtype=np.float32)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
            here = len(rows)
            yield Part(
                ids=[f"{block.name}-{number}" for number in range(first, first + here)],
                labels=labels.of(first, here),
                splits=[block.split] * here,
                groups=[None] * here,
                records=pa.record_batch([lists], ["features"]),
            )
            first += here
