"""The signing key of a machine: made on first use, kept in a file, and what it signs.

It signs anchors of ledgers, what machines remember of their ledgers, exports and certificates. The
file holds the private half as hexadecimal digits; only its owner may read it, and no passphrase
protects it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from dpal.canonical import canonical_json
from dpal.errors import LedgerError, ParameterError
from dpal.files.atomic_writes import make_private, write_text, writing

_FILE, _LOCK = "anchor.key", ".lock"


class SigningKey:
    """The Ed25519 key of a folder.

    Attributes:
      folder: where its file is, or will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def exists(self) -> bool:
        """Whether it was made already."""
        return (self.folder / _FILE).is_file()

    def public_key(self) -> str:
        """The public half, 64 hexadecimal digits; made on first use.

        Raises:
          LedgerError: the file holds no key.
          StorageError: it cannot be made.
        """
        return _public_half(self._private())

    def sign(self, message: bytes) -> bytes:
        """The signature of a message.

        What `signed` signs is canonical JSON and begins with a brace; a message must begin
        otherwise, so that no signature of one passes for one of the other (DSSE's begin with
        "DSSEv1 ").
        """
        if message.startswith(b"{"):
            raise ParameterError("a message that looks like an anchor is not signed")
        return self._private().sign(message)

    def signed(self, content: dict[str, Any]) -> dict[str, Any]:
        """Adds the public half, and the signature of all of it; see `is_signed`."""
        private = self._private()
        fields = {**content, "key": _public_half(private)}
        return {**fields, "signature": private.sign(canonical_json(fields).encode()).hex()}

    def _private(self) -> Ed25519PrivateKey:
        path = self.folder / _FILE
        if not path.exists():
            with one_process(self.folder):
                if not path.exists():  # else another process was quicker
                    write_text(path, Ed25519PrivateKey.generate().private_bytes_raw().hex())
        try:
            return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text("ascii")))
        except (OSError, ValueError) as error:
            raise LedgerError.before_release(
                f"{path} is no signing key; restore it, or remove it and vouch for the ledger: "
                "dpal ledger adopt DIR --reason TEXT"
            ) from error


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """Within this block no other process is in one of the same folder.

    Raises:
      StorageError: the folder cannot be made, or written to.
    """
    path = folder / _LOCK
    with writing(path):
        make_private(folder)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_signed(content: Any) -> bool:
    """Whether an object is as the holder of the key that it names signed it."""
    if not isinstance(content, dict) or not {"key", "signature"} <= content.keys():
        return False
    fields = {name: value for name, value in content.items() if name != "signature"}
    try:
        signed = canonical_json(fields)
    except ValueError:
        return False
    return _holds(str(content["key"]), str(content["signature"]), signed)


@lru_cache(maxsize=64)  # every append asks for the same anchor several times
def _holds(key: str, signature: str, signed: str) -> bool:
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), signed.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def _public_half(private: Ed25519PrivateKey) -> str:
    return private.public_key().public_bytes_raw().hex()
