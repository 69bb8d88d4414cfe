"""Which files a pool is made of, and what commits to all of them together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dpal.canonical import file_digest
from dpal.errors import DataError


def files_of(place: Path | Sequence[Path]) -> list[Path]:
    """The files that a place stands for.

    Raises:
      DataError: there are none.
    """
    if not isinstance(place, Path):
        paths = [path for entry in place for path in files_of(entry)]
    elif place.is_dir():
        paths = sorted(visible(place, "*.parquet"))
    else:
        return [place]
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


def digest_of(files: Iterable[Path]) -> str:
    """SHA-256 of each file's bytes, in order, in hexadecimal."""
    return "".join(file_digest(path) for path in files)
