"""CIFAR-10 and CIFAR-100 as published: pickles for Python, or binaries.

A pickle runs code when it is read in full; here only arrays of bytes and lists are let through.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.data.importing.importers import OpenedSource
from dpal.data.importing.picture_files import NamedPicture, encoded, picture_parts
from dpal.data.importing.settings import ImportSettings
from dpal.data.parquet import reading
from dpal.data.sources import Content
from dpal.errors import DataError

_PIXELS = 3 * 32 * 32
_TEN = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Arrays(pickle.Unpickler):
    """Reads arrays and plain values, and refuses whatever else a pickle may name."""

    def find_class(self, module: str, name: str) -> Any:
        """Lets through what arrays are made with."""
        if (module, name) not in _ALLOWED:
            raise DataError(
                f"the file names {module}.{name}, which no picture needs; it is not read"
            )
        return super().find_class(module, name)


def open_cifar(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a folder of CIFAR's files.

    Raises:
      DataError: a file is damaged.
    """
    folder = place.parent if place.is_file() else place
    hundred = (folder / "train").is_file() or (folder / "train.bin").is_file()
    train = ["train", "train.bin"] if hundred else ["data_batch_*"]
    test = ["test", "test.bin"] if hundred else ["test_batch*"]
    files = [
        (path, part)
        for part, patterns in (("train", train), ("test", test))
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
    ]
    return OpenedSource(
        content=Content.IMAGE,
        parts=lambda: picture_parts(_pictures(files, hundred), settings.picture_rule),
        classes=settings.classes or _names(folder, hundred),
        has_splits=len({part for _, part in files}) == 2,
        about=f"CIFAR-{100 if hundred else 10} in {len(files)} files",
    )


def _names(folder: Path, hundred: bool) -> tuple[str, ...]:
    if not hundred:
        return _TEN
    if (folder / "meta").is_file():
        return tuple(map(_as_text, _unpickled(folder / "meta")["fine_label_names"]))
    text = (folder / "fine_label_names.txt").read_text(encoding="utf-8")
    return tuple(text.split())


def _as_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _unpickled(path: Path) -> dict[str, Any]:
    with reading(path), path.open("rb") as stream:
        loaded = _Arrays(stream, encoding="bytes").load()
        return {_as_text(key): value for key, value in loaded.items()}


def _pictures(files: list[tuple[Path, str]], hundred: bool) -> Iterator[NamedPicture]:
    for path, part in files:
        rows, numbers = _binary(path, hundred) if path.suffix == ".bin" else _pickle(path, hundred)
        names = _names(path.parent, hundred)
        for position, row in enumerate(rows):
            yield NamedPicture(
                id=f"{path.name}-{position}",
                place=encoded(np.ascontiguousarray(row.reshape(3, 32, 32).transpose(1, 2, 0))),
                label=names[int(numbers[position])],
                split=part,
            )


def _pickle(path: Path, hundred: bool) -> tuple[NDArray[np.uint8], list[int]]:
    held = _unpickled(path)
    rows = np.asarray(held["data"], dtype=np.uint8)
    return rows.reshape(-1, _PIXELS), list(held["fine_labels" if hundred else "labels"])


def _binary(path: Path, hundred: bool) -> tuple[NDArray[np.uint8], list[int]]:
    before = 2 if hundred else 1  # of CIFAR-100 the coarse label comes first
    content = np.fromfile(path, dtype=np.uint8)
    if not content.size or content.size % (before + _PIXELS):
        raise DataError(
            f"{path} is no whole number of CIFAR records; the file is damaged, restore it"
        )
    rows = content.reshape(-1, before + _PIXELS)
    return rows[:, before:], rows[:, before - 1].tolist()
