"""One process at a time runs a campaign."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpal.errors import CampaignBusy, LedgerError, StorageError

_HELD: set[Path] = set()


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Holds a campaign's folder; the operating system lets go of it when the process dies.

    Only under a claim may an open reservation be taken up again: it proves that whoever
    made it is gone.

    Raises:
      CampaignBusy: another process, or another thread of this one, holds the folder.
      StorageError: the folder cannot be made or written.
    """
    path = (folder / ".lock").resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise StorageError(str(folder), error.strerror or str(error)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CampaignBusy(
                f"campaign {folder.name} is being run by another process; wait for it to end, "
                "or stop it and run the same command again"
            ) from error
        try:
            folder.chmod(0o700)
        except OSError as error:
            raise StorageError(str(folder), error.strerror or str(error)) from error
        _HELD.add(path)
        try:
            yield
        finally:
            _HELD.discard(path)
    finally:
        os.close(descriptor)


def require_claim(folder: Path) -> None:
    """Requires that this process holds the campaign's folder.

    Raises:
      LedgerError: it does not.
    """
    if (folder / ".lock").resolve() not in _HELD:
        raise LedgerError(
            f"campaign {folder.name} is not claimed by this process; nothing was released"
        )
