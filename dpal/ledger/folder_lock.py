"""The lock by which one process at a time runs a campaign."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpal.errors import CampaignBusy, LedgerError
from dpal.files.atomic_writes import make_private, writing

_CLAIM, _CONDUCTOR, _TEACHERS = ".lock", ".conductor", ".teachers"
_LOOK_AGAIN = 0.2
_HAND_OVER_SECONDS = 120.0  # whoever had the claim ends its process first
_VOTE_SECONDS = 600.0  # for a block of votes to be released

_HELD: dict[Path, int] = {}


@contextmanager
def lock_folder(folder: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Holds a campaign's folder; the operating system lets go of it when the process dies.

    Only under a claim may an open reservation be taken up again: it proves that whoever
    made it is gone.

    Args:
      folder: of the campaign.
      patience: seconds to wait for whoever holds it now.

    Raises:
      CampaignBusy: another process, or another thread of this one, holds the folder.
      StorageError: the folder cannot be made or written.
    """
    with _locked(folder, _CLAIM, patience) as descriptor:
        with writing(folder):
            folder.chmod(0o700)
        path = _claim_of(folder)
        _HELD[path] = descriptor
        try:
            yield
        finally:
            _HELD.pop(path, None)


@contextmanager
def leading_process(folder: Path) -> Iterator[None]:
    """Is the one process that leads a campaign from phase to phase, whoever holds its claim.

    Raises:
      CampaignBusy: another process leads it.
      StorageError: the folder cannot be made or written.
    """
    with _locked(folder, _CONDUCTOR, 0.0):
        yield


@contextmanager
def only_vote(artifacts: Path) -> Iterator[None]:
    """Is the one process that opens or asks a voting account of an artifacts folder.

    Two at once could ask the same teachers, and neither would find the other's ballots.

    Raises:
      CampaignBusy: another process released votes for too long.
      StorageError: the folder cannot be made or written.
    """
    with _locked(
        artifacts, _TEACHERS, _VOTE_SECONDS, what=f"an account of teachers in {artifacts}"
    ):
        yield


@contextmanager
def lend_lock(folder: Path) -> Iterator[None]:
    """Lets go of a claim, so that a worker can hold it, and takes it back at the end.

    Within the block this process can release nothing. If the block ends by an error the
    claim is not taken back: the worker may still hold it.

    Raises:
      LedgerError: this process does not hold the claim.
      CampaignBusy: it was not given back in time.
    """
    require_claim(folder)
    path = _claim_of(folder)
    descriptor = _HELD.pop(path)
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    yield
    _take(descriptor, folder, _HAND_OVER_SECONDS)
    _HELD[path] = descriptor


def require_claim(folder: Path) -> None:
    """Requires that this process holds the campaign's folder.

    Raises:
      LedgerError: it does not.
    """
    if _claim_of(folder) not in _HELD:
        raise LedgerError.before_release(f"campaign {folder.name} is not claimed by this process")


def _claim_of(folder: Path) -> Path:
    return (folder / _CLAIM).resolve()


@contextmanager
def _locked(folder: Path, name: str, patience: float, what: str = "") -> Iterator[int]:
    with writing(folder):
        make_private(folder)
        descriptor = os.open((folder / name).resolve(), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        _take(descriptor, folder, patience, what)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path, patience: float, what: str = "") -> None:
    """Locks a file, or says that another process has it and kept it for too long."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if time.monotonic() >= deadline:
                raise CampaignBusy(
                    f"{what or f'campaign {folder.name}'} is being run by another process; wait "
                    "for it to end, or stop it and run the same command again"
                ) from error
        time.sleep(_LOOK_AGAIN)
