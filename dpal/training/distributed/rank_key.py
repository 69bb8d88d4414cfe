"""The key that machines know which train together: a file that its owner alone can read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from dpal.errors import DataError
from dpal.files.atomic_writes import write_once

_BYTES = 32


def write_rank_key(path: Path) -> bool:
    """Writes a fresh key where there is none; gives whether it did.

    Raises:
      StorageError: the disk is full or the folder cannot be written.
    """
    fresh = f"{secrets.token_hex(_BYTES)}\n".encode()
    write_once(path, fresh)
    return path.read_bytes() == fresh


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
