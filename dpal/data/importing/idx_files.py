"""IDX files: pictures and labels as MNIST, Fashion-MNIST, EMNIST and QMNIST are published.

An IDX file begins with its type, the number of its sides and their lengths; its values follow.
Pictures are read some at a time, labels as a whole. Of labels with several columns (QMNIST) the
first is the class. Of QMNIST's test digits the first 10,000 are MNIST's, and the others those that
MNIST lost: its parts test10k and test50k (Yadav & Bottou 2019).
"""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpal.data.importing.importers import PART, OpenedSource, idx_pictures
from dpal.data.importing.picture_files import NamedPicture, picture_parts
from dpal.data.importing.picture_form import encoded
from dpal.data.importing.settings import ImportSettings
from dpal.data.parquet import reading
from dpal.data.sources import Content
from dpal.errors import DataError

_TYPES = {0x08: ">u1", 0x0B: ">i2", 0x0C: ">i4"}
_PARTS = (("train", "train"), ("t10k", "test"), ("test", "test"))
_LONGEST = 8192  # side of a picture
_OF_MNIST = 10_000  # test digits of QMNIST that MNIST has, too: the first ones


def open_idx(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a folder of IDX files, or at one file of pictures beside its labels.

    Raises:
      DataError: a file is damaged, or pictures have no labels.
    """
    files = idx_pictures(place)
    pairs = [(path, _labels_of(path), _part_of(path)) for path in files]
    if len({part for *_, part in pairs}) < len(pairs):
        raise DataError(
            f"{place} has several files of one part ({', '.join(path.name for path in files)}); "
            "name one file, or move the others away"
        )
    for path, *_ in pairs:
        _require_picture(path)
    divided = len(pairs) > 1
    return OpenedSource(
        content=Content.IMAGE,
        parts=lambda: picture_parts(_pictures(pairs, divided), settings),
        classes=settings.classes,
        has_splits=divided,
        about=f"IDX pictures in {len(pairs)} files",
    )


def _labels_of(pictures: Path) -> Path:
    """The file of labels beside one of pictures."""
    name = re.escape(pictures.name.partition("images")[0])
    found = [path for path in sorted(pictures.parent.iterdir())
             if re.match(rf"{name}labels.idx[12]-(ubyte|int)", path.name)]  # fmt: skip
    if len(found) > 1:  # QMNIST has classes in a file of their own, too
        found = [path for path in found if "labels-idx1" in path.name] or found
    if len(found) != 1:
        raise DataError(
            f"{pictures} needs one file of labels beside it, as "
            f"{pictures.name.replace('images', 'labels').replace('idx3', 'idx1')}, and there are "
            f"{len(found)}"
        )
    return found[0]


def _part_of(path: Path) -> str | None:
    return next((part for word, part in _PARTS if word in path.name), None)


def _part_at(path: Path, position: int) -> str | None:
    """The part of a picture of a file that is imported alone."""
    if not path.name.startswith("qmnist-test-"):
        return None
    return "test10k" if position < _OF_MNIST else "test50k"


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with reading(path):
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            with path.open("rb") as stream:
                yield stream


def _header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The sides of a file's array, and what it is made of."""
    start = stream.read(4)
    sides = start[3] if len(start) == 4 and start[:2] == b"\0\0" else 0
    lengths = stream.read(4 * sides)
    if not 1 <= sides <= 3 or start[2] not in _TYPES or len(lengths) < 4 * sides:
        raise _damaged(path)
    shape = np.frombuffer(lengths, ">u4").tolist()
    return tuple(shape), np.dtype(_TYPES[start[2]])


def _require_picture(path: Path) -> None:
    with _opened(path) as stream:
        shape, kind = _header(stream, path)
    if len(shape) != 3 or kind.itemsize != 1 or not all(1 <= n <= _LONGEST for n in shape[1:]):
        raise _damaged(path)


def _classes(path: Path) -> NDArray[np.int64]:
    """A class for each picture."""
    with _opened(path) as stream:
        shape, kind = _header(stream, path)
        content = stream.read(math.prod(shape) * kind.itemsize + 1)
    if len(content) != math.prod(shape) * kind.itemsize:
        raise _damaged(path)
    values = np.frombuffer(content, kind).reshape(shape[0], -1)
    return values[:, 0].astype(np.int64)


def _pictures(pairs: list[tuple[Path, Path, str | None]], divided: bool) -> Iterator[NamedPicture]:
    for path, labels, part in pairs:
        classes = _classes(labels)
        with _opened(path) as stream:
            (count, *side), _ = _header(stream, path)
            if count != len(classes):
                raise DataError(f"{path} and {labels.name} are of different lengths; restore them")
            for first in range(0, count, PART):
                wanted = min(PART, count - first)
                content = stream.read(wanted * math.prod(side))
                if len(content) < wanted * math.prod(side):
                    raise _damaged(path)
                pictures = np.frombuffer(content, np.uint8).reshape(wanted, *side)
                for position, picture in enumerate(pictures, start=first):
                    yield NamedPicture(
                        id=f"{path.name.removesuffix('.gz')}-{position}",
                        place=encoded(picture),
                        label=str(classes[position]),
                        split=part if divided else _part_at(path, position),
                    )


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is no IDX file, or not all of one; restore it")
