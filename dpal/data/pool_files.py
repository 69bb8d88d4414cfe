"""Which files a pool is made of, and what commits to all of them together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from dpal.canonical import file_digest
from dpal.errors import DataError

if TYPE_CHECKING:  # a served model reads no file
    from dpal.files.stored_objects import Place

_PIECE = 2**23  # bytes that are asked for at a time


@overload
def files_of(place: Path | Sequence[Path]) -> list[Path]: ...


@overload
def files_of(place: Place | Sequence[Place]) -> list[Place]: ...


def files_of(place: Place | Sequence[Place]) -> Sequence[Place]:
    """The files that a place stands for.

    Raises:
      DataError: there are none.
      StoreError: a store does not answer, or gives no access.
    """
    paths: list[Place]
    if isinstance(place, Sequence):
        paths = [path for entry in place for path in files_of(entry)]
    elif not place.is_dir():
        return [place]
    elif isinstance(place, Path):
        paths = [*sorted(visible(place, "*.parquet"))]
    else:
        paths = [*place.inside(".parquet")]
    if not paths:
        raise DataError(f"{place or 'an empty list'} holds no Parquet file; a campaign needs some")
    if len({path.resolve() for path in paths}) < len(paths):
        raise DataError(f"{place} names a file twice; each record may be in the pool once")
    return paths


def visible(folder: Path, pattern: str) -> Iterator[Path]:
    """What a pattern finds in a folder, but for what a file in the making leaves there."""
    for path in folder.glob(pattern):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def commitment(salt: bytes, digest: str) -> str:
    """Commits to files without letting anyone confirm a guess of them.

    Args:
      salt: random bytes that never leave.
      digest: of the files, by `digest_of`.
    """
    return hashlib.sha256(salt + digest.encode()).hexdigest()


def digest_of(files: Iterable[Place]) -> str:
    """SHA-256 of each file's bytes, in order, in hexadecimal."""
    return "".join(map(data_file_digest, files))


def data_file_digest(place: Place) -> str:
    """SHA-256 of a file's bytes, wherever it lies, in hexadecimal."""
    if isinstance(place, Path):
        return file_digest(place)
    digest = hashlib.sha256()
    with place.open() as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
