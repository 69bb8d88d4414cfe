"""Putting files away that cannot be used, with the reason beside them."""

from __future__ import annotations

from pathlib import Path

from dpal.data.inbox.folder import Inbox
from dpal.files.atomic_writes import write_text

REASON = ".reason.txt"


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
    inbox: Inbox,
    name: str,
    quarantine: Inbox,
    free: str,
    reason: str,
    *,
    here: Path,
    stays: bool = False,
) -> str:
    """Moves a file into quarantine and writes the reason beside it.

    Doing it again, after a crash anywhere in between, ends the same. Where the folder cannot
    be written, or somebody else needs the file, it stays, and a copy with the reason is kept on
    this machine.

    Args:
      inbox: the watched folder.
      name: of the file.
      quarantine: where it goes.
      free: what it is called there.
      reason: one sentence.
      here: folder on this machine for what cannot be moved.
      stays: whether the file may not be moved.

    Returns:
      Where the file, or its copy, is now.

    Raises:
      DataError: the file cannot even be copied.
    """
    if stays:
        return _keep_copy(inbox, name, here / free, reason)
    try:
        quarantine.files.makedirs(quarantine.root, exist_ok=True)
        if inbox.files.exists(inbox.path(name)):
            _move(inbox, name, quarantine, free)
        text = f"{reason}\n".encode()
        quarantine.files.pipe_file(quarantine.path(free + REASON), text)
        return f"{quarantine.place.rstrip('/')}/{free}"
    except Exception:  # read-only in whatever way: rights, a mount, a policy of the bucket
        return _keep_copy(inbox, name, here / free, reason)


def _keep_copy(inbox: Inbox, name: str, kept: Path, reason: str) -> str:
    inbox.fetch(name, kept)
    write_text(kept.with_name(kept.name + REASON), f"{reason}\n")
    return str(kept)


def _move(inbox: Inbox, name: str, quarantine: Inbox, free: str) -> None:
    source, target = inbox.path(name), quarantine.path(free)
    if type(inbox.files) is type(quarantine.files):
        if inbox.is_local:
            inbox.files.mv(source, target)
            return
        # Not mv, which takes *, ? and [ in a name for a pattern and moves all that match it.
        inbox.files.cp_file(source, target)
        inbox.files.rm_file(source)
        return
    with inbox.files.open(source, "rb") as given, quarantine.files.open(target, "wb") as kept:
        while part := given.read(1 << 22):
            kept.write(part)
    inbox.files.rm_file(source)
