"""Messages of one direction between two parties that share a key: sealed, numbered, in order."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


@dataclass(eq=False)
class SealedDirection:
    """One direction: no message can be read, altered, left out or sent twice on the way.

    Attributes:
      key: 32 bytes, of this direction of this connection alone.
      number: of the last message, from 1.
    """

    key: bytes
    number: int = 0

    def seal(self, data: bytes) -> bytes:
        """Encrypts the next message."""
        return AESGCM(self.key).encrypt(self._nonce(), data, None)

    def open(self, data: bytes) -> bytes:
        """Reads the next message.

        Raises:
          cryptography.exceptions.InvalidTag: it is not the next one of this key.
        """
        return AESGCM(self.key).decrypt(self._nonce(), data, None)

    def _nonce(self) -> bytes:
        self.number += 1
        return self.number.to_bytes(12, "big")
