"""Files of a watched folder that can be used: their ids are new, and links make them a pool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpal.data.readers import raw_batches
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.files.atomic_writes import make_private, writing

NameHashes = NDArray[np.uint64]


def link_pool(files: Sequence[Path], folder: Path) -> Path:
    """Makes a folder of links to files, which sort in the order given.

    Raises:
      StorageError: the folder cannot be written.
    """
    wanted = {f"{number:05d}-{path.name}": path for number, path in enumerate(files)}
    # A suffix in capitals would not be taken for a Parquet file.
    wanted = {Path(name).with_suffix(".parquet").name: path for name, path in wanted.items()}
    with writing(folder):
        make_private(folder)
        for link in folder.iterdir():
            if link.name not in wanted or link.readlink() != wanted[link.name]:
                link.unlink()
        for name, path in wanted.items():
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(path)
    return folder


def follow_renamed(before: Path, now: Path, folder: Path) -> None:
    """Points links of pools that were made before at a file that has another name now.

    A campaign may wait for its labels, and reads its pool again when they come.

    Args:
      before: where the file was, as links say it.
      now: where it is.
      folder: of the pools, each a folder of links.

    Raises:
      StorageError: the folder cannot be written.
    """
    with writing(folder):
        for link in folder.glob("*/*"):
            if link.is_symlink() and link.readlink() == before:
                beside = folder / f".{link.name}"
                beside.unlink(missing_ok=True)
                beside.symlink_to(now)
                beside.replace(link)


def name_hashes(source: Source) -> NameHashes:
    """64-bit hashes of the ids of a source, of use in this process only."""
    empty = np.zeros(0, np.uint64)
    parts = [
        np.array([hash(name) for name in batch.table.column("id").to_pylist()], np.int64)
        for batch in raw_batches(source, ["id"])
    ]
    return np.concatenate([empty, *(part.view(np.uint64) for part in parts)])


def require_new_names(name: str, mine: NameHashes, earlier: NameHashes) -> None:
    """Requires that none of a file's ids stands in an earlier file.

    Raises:
      DataError: some do; says how many, not which.
    """
    repeated = int(np.isin(mine, earlier).sum())
    if repeated:
        raise DataError(
            f"{repeated:,} of the {mine.size:,} ids of {name} stand in files that came before; "
            "one record, one id: bring only records that are new"
        )
