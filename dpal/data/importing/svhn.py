"""SVHN as published: `train_32x32.mat`, `test_32x32.mat` and `extra_32x32.mat`, of MATLAB.

Such a file is read as a whole: 1.6 GB of memory for the 531,131 extra pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
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

_DIGITS = tuple("0123456789")


def open_svhn(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at one file of SVHN, such as `extra_32x32.mat`, or at a folder with train and test."""
    if place.is_file():
        files: list[tuple[Path, str | None]] = [(place, None)]
    else:
        files = [(place / f"{part}_32x32.mat", part) for part in ("train", "test")]
    return OpenedSource(
        content=Content.IMAGE,
        parts=lambda: picture_parts(_pictures(files), settings),
        classes=settings.classes or _DIGITS,
        has_splits=len(files) > 1,
        about=f"SVHN in {len(files)} files" if len(files) > 1 else "one file of SVHN",
    )


def _pictures(files: list[tuple[Path, str | None]]) -> Iterator[NamedPicture]:
    for path, part in files:
        pixels, classes = _arrays(path)
        for position, label in enumerate(classes):
            yield NamedPicture(
                id=f"{path.stem}-{position}",
                place=encoded(np.ascontiguousarray(pixels[..., position])),
                label=str(label % 10),  # it calls the digit 0 a 10
                split=part,
            )


def _arrays(path: Path) -> tuple[NDArray[np.uint8], list[int]]:
    """Pictures, (32, 32, 3, n), and classes from 1 to 10."""
    from scipy.io import loadmat

    with reading(path):
        held: dict[str, Any] = loadmat(path, variable_names=["X", "y"])
    pixels, labels = held.get("X"), held.get("y")
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, np.ndarray):
        raise _damaged(path)
    classes = labels.reshape(-1)
    fits = pixels.dtype == np.uint8 and pixels.ndim == 4 and pixels.shape[2] == 3
    if not fits or pixels.shape[3] != len(classes) or labels.dtype.kind not in "biuf":
        raise _damaged(path)
    numbers = [int(each) for each in classes]
    if not all(1 <= each <= 10 for each in numbers):
        raise DataError(f"{path} has a label that is none of 1 to 10; restore it")
    return pixels, numbers


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} has no pictures X and labels y as SVHN has them; restore it")
