"""CIFAR-10 and CIFAR-100 as published: pickles for Python, or binaries.

A pickle calls what it names, and what arrays are made with, called otherwise than by NumPy's own
pickles, makes objects of whatever bytes a file holds. So nothing that a pickle may call here is
NumPy's, an array is made of bytes that were counted, and what names anything else is refused.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.data.importing.importers import OpenedSource
from dpal.data.importing.picture_files import NamedPicture, picture_parts
from dpal.data.importing.picture_form import encoded
from dpal.data.importing.settings import ImportSettings
from dpal.data.parquet import reading
from dpal.data.sources import Content
from dpal.errors import DataError

_PIXELS = 3 * 32 * 32
_TEN = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_KINDS = ("u1", "i4", "i8")  # numbers of pixels and of labels


class _Odd(Exception):
    """A pickle holds something else than arrays of whole numbers."""


_ARRAY = object()  # what a pickle names as the class of an array


class _Kind:
    """The type of an array's numbers, by name."""

    def __init__(self, name: object, *_: object) -> None:
        self.name = _as_text(name) if isinstance(name, str | bytes) else ""
        if self.name not in _KINDS:
            raise _Odd

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", "|", b"<", b"|"):
            raise _Odd


class _Array:
    """An array that a pickle describes; made of bytes, of which there are as many as it says."""

    values: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, content = state
        fits = (
            type(kind) is _Kind
            and isinstance(content, bytes)
            and all(type(side) is int and side >= 0 for side in shape)
            and len(content) == np.dtype(kind.name).itemsize * math.prod(shape)
        )
        if not fits:
            raise _Odd
        flat = np.frombuffer(content, kind.name)
        self.values = flat.reshape(shape, order="F" if by_columns else "C")


class _Named:
    """What a pickle may call; it cannot be altered by it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setstate__(self, state: object) -> None:
        raise _Odd


def _empty(kind: object, *_: object) -> _Array:
    if kind is not _ARRAY:
        raise _Odd
    return _Array()


def _encoded(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes for Python 2."""
    if encoding != "latin1":
        raise _Odd
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty,
    ("numpy._core.multiarray", "_reconstruct"): _empty,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encoded,
}


class _Arrays(pickle.Unpickler):
    """Reads arrays and plain values, and refuses whatever else a pickle may name."""

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a name: never the thing itself."""
        if (module, name) == ("numpy", "ndarray"):
            return _ARRAY
        if (module, name) not in _ALLOWED:
            raise DataError(
                "the file names {named}, which no picture needs; it is not read",
                named=f"{module}.{name}",
            )
        return _Named(_ALLOWED[module, name])


def open_cifar(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a folder of CIFAR's files.

    Raises:
      DataError: a file is damaged.
    """
    folder = place.parent if place.is_file() else place
    if place.is_file():  # that file alone, and no part of the pool or held out by its name
        return OpenedSource(
            content=Content.IMAGE,
            parts=lambda: picture_parts(_pictures([(place, None)], False), settings),
            classes=settings.classes or _TEN,
            about="one file of CIFAR-10",
        )
    hundred = (folder / "train").is_file() or (folder / "train.bin").is_file()
    train = ["train", "train.bin"] if hundred else ["data_batch_*"]
    test = ["test", "test.bin"] if hundred else ["test_batch*"]
    files: list[tuple[Path, str | None]] = [
        (path, part)
        for part, patterns in (("train", train), ("test", test))
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
    ]
    return OpenedSource(
        content=Content.IMAGE,
        parts=lambda: picture_parts(_pictures(files, hundred), settings),
        classes=settings.classes or _names(folder, hundred),
        has_splits=len({part for _, part in files}) == 2,
        about=f"CIFAR-{100 if hundred else 10} in {len(files)} files",
    )


def _names(folder: Path, hundred: bool) -> tuple[str, ...]:
    if not hundred:
        return _TEN
    if (folder / "meta").is_file():
        names = _unpickled(folder / "meta").get("fine_label_names")
        if not isinstance(names, list) or not all(isinstance(each, str | bytes) for each in names):
            raise DataError(f"{folder / 'meta'} has no list fine_label_names; restore it")
        return tuple(map(_as_text, names))
    with reading(folder / "fine_label_names.txt"):
        return tuple((folder / "fine_label_names.txt").read_text(encoding="utf-8").split())


def _as_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _unpickled(path: Path) -> dict[str, Any]:
    with reading(path), path.open("rb") as stream:
        try:
            loaded = _Arrays(stream, encoding="bytes").load()
        except _Odd:
            loaded = None
        if not isinstance(loaded, dict):
            raise DataError(f"{path} holds something else than arrays of whole numbers")
        return {_as_text(key): value for key, value in loaded.items()}


def _pictures(files: list[tuple[Path, str | None]], hundred: bool) -> Iterator[NamedPicture]:
    for path, part in files:
        rows, numbers = _binary(path, hundred) if path.suffix == ".bin" else _pickle(path, hundred)
        names = _names(path.parent, hundred)
        if not all(type(each) is int and 0 <= each < len(names) for each in numbers):
            raise DataError(f"{path} has a label that is no number below {len(names)}; restore it")
        for position, row in enumerate(rows):
            yield NamedPicture(
                id=f"{path.name}-{position}",
                place=encoded(np.ascontiguousarray(row.reshape(3, 32, 32).transpose(1, 2, 0))),
                label=names[numbers[position]],
                split=part,
            )


def _pickle(path: Path, hundred: bool) -> tuple[NDArray[np.uint8], Sequence[Any]]:
    held, key = _unpickled(path), "fine_labels" if hundred else "labels"
    rows, labels = (_plain(held.get(name)) for name in ("data", key))
    whole = isinstance(rows, np.ndarray) and rows.dtype == np.uint8 and rows.ndim == 2
    labels = labels.tolist() if isinstance(labels, np.ndarray) else labels
    if not (whole and rows.shape[1] == _PIXELS and isinstance(labels, list)):
        raise DataError(f"{path} has no rows of {_PIXELS:,} bytes as data, or no {key}; restore it")
    if len(labels) != len(rows):
        raise DataError(f"{path} has more labels than pictures, or fewer; restore it")
    return rows, labels


def _plain(value: Any) -> Any:
    return getattr(value, "values", None) if type(value) is _Array else value


def _binary(path: Path, hundred: bool) -> tuple[NDArray[np.uint8], Sequence[Any]]:
    before = 2 if hundred else 1  # of CIFAR-100 the coarse label comes first
    with reading(path):
        content = np.fromfile(path, dtype=np.uint8)
    if not content.size or content.size % (before + _PIXELS):
        raise DataError(
            f"{path} is no whole number of CIFAR records; the file is damaged, restore it"
        )
    rows = content.reshape(-1, before + _PIXELS)
    return rows[:, before:], rows[:, before - 1].tolist()
