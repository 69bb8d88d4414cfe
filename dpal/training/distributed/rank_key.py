"""The key that machines know which train together: a file that its owner alone can read."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from dpal.errors import DataError

_BYTES = 32


def write_rank_key(path: Path) -> bool:
    """Writes a fresh key where there is none; gives whether it did."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(half, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_BYTES) + "\n")
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            path.hardlink_to(half)  # whole or not at all, and never over another one
            return True
        return False
    finally:
        half.unlink()


def read_rank_key(path: Path) -> bytes:
    """Reads the key.

    Returns:
      32 bytes.

    Raises:
      DataError: it is missing, damaged, another user's, or others can read it.
    """
    try:
        about = path.stat()
        text = path.read_text(encoding="ascii").strip()
        key = bytes.fromhex(text)
    except FileNotFoundError as error:
        raise DataError.before_release(
            f"{path} is missing, the key that machines know which train together; copy it from the "
            "machine that trains (dpal ranks FILE.yaml --write-key makes one there)"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError.before_release(
            f"{path} cannot be read as a key of machines that train together; copy it anew from "
            "the machine that trains"
        ) from error
    if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DataError.before_release(
            f"{path} belongs to another user, or others can read it; if nobody did: chmod 600 "
            f"{path}, else remove it and make another one (dpal ranks FILE.yaml --write-key)"
        )
    if len(key) != _BYTES:
        raise DataError.before_release(
            f"{path} is no whole key; copy it anew from the machine that trains"
        )
    return key
