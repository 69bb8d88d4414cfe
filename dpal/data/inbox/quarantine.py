"""Putting files away that cannot be used, and laying out a pool of those that can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpal.data.inbox.folder import Inbox
from dpal.data.readers import raw_batches
from dpal.data.sources import Source
from dpal.errors import DataError, StorageError
from dpal.files.atomic_writes import make_private, write_text

REASON = ".reason.txt"

NameHashes = NDArray[np.uint64]


def free_place(quarantine: Inbox, name: str) -> str:
    """Where a file can be put without replacing an earlier one of its name."""
    stem, dot, suffix = name.rpartition(".")
    number, free = 1, name
    while any(
        quarantine.files.exists(quarantine.path(candidate)) for candidate in (free, free + REASON)
    ):
        number += 1
        free = f"{stem}-{number}{dot}{suffix}"
    return free


def put_away(
    inbox: Inbox, name: str, quarantine: Inbox, free: str, reason: str, *, here: Path
) -> str:
    """Moves a file into quarantine and writes the reason beside it.

    Doing it again, after a crash anywhere in between, ends the same. Where the folder cannot
    be written, the file stays, and a copy with the reason is kept on this machine.

    Args:
      inbox: the watched folder.
      name: of the file.
      quarantine: where it goes.
      free: what it is called there.
      reason: one sentence.
      here: folder on this machine for what cannot be moved.

    Returns:
      Where the file, or its copy, is now.

    Raises:
      DataError: the file cannot even be copied.
    """
    try:
        quarantine.files.makedirs(quarantine.root, exist_ok=True)
        if inbox.files.exists(inbox.path(name)):
            _move(inbox, name, quarantine, free)
        text = f"{reason}\n".encode()
        quarantine.files.pipe_file(quarantine.path(free + REASON), text)
        return f"{quarantine.place.rstrip('/')}/{free}"
    except Exception:  # read-only in whatever way: rights, a mount, a policy of the bucket
        kept = here / free
        inbox.fetch(name, kept)
        write_text(kept.with_name(free + REASON), f"{reason}\n")
        return str(kept)


def link_pool(files: Sequence[Path], folder: Path) -> Path:
    """Makes a folder of links to files, which sort in the order given.

    Raises:
      StorageError: the folder cannot be written.
    """
    wanted = {f"{number:05d}-{path.name}": path for number, path in enumerate(files)}
    # A suffix in capitals would not be taken for a Parquet file.
    wanted = {Path(name).with_suffix(".parquet").name: path for name, path in wanted.items()}
    try:
        make_private(folder)
        for link in folder.iterdir():
            if link.name not in wanted or link.readlink() != wanted[link.name]:
                link.unlink()
        for name, path in wanted.items():
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(path)
    except OSError as error:
        raise StorageError(str(folder), error.strerror or type(error).__name__) from error
    return folder


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


def _move(inbox: Inbox, name: str, quarantine: Inbox, free: str) -> None:
    source, target = inbox.path(name), quarantine.path(free)
    if type(inbox.files) is type(quarantine.files):
        inbox.files.mv(source, target)
        return
    with inbox.files.open(source, "rb") as given, quarantine.files.open(target, "wb") as kept:
        while part := given.read(1 << 22):
            kept.write(part)
    inbox.files.rm_file(source)
