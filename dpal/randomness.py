"""The two sources of randomness, always passed as an argument.

`seeded` is for what must repeat and never touches private noise (weights of a fresh
model). `secure` is for noise and batch membership: operating-system entropy stretched
by AES-256 in counter mode; its key exists in memory only and cannot be set.
"""

from __future__ import annotations

import hashlib
import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpal.errors import NoiseReused

Words = NDArray[np.uint64]

_ZEROS = memoryview(bytes(1 << 17))
_SPARE = 2  # words: update_into asks for the room of one more block, and leaves it alone


class BitSource(Protocol):
    """A stream of independent, uniform 64-bit words."""

    def words(self, count: int) -> Words:
        """Returns the next `count` words, shape (count,)."""
        ...


class SecureBits:
    """AES-256-CTR key stream under a key drawn from the operating system."""

    # NIST SP 800-38A: one key serves far more than 2**64 blocks of 16 bytes in practice;
    # a fresh object still takes a fresh key, so streams of two releases never overlap.
    def __init__(self) -> None:
        # Imported here: models that are served take `seeded` alone, and bring no cryptography.
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        cipher = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16)))
        self._stream = cipher.encryptor()
        self._process = os.getpid()

    def words(self, count: int) -> Words:
        """Returns the next `count` words, shape (count,).

        Raises:
          NoiseReused: this process is a fork of the one that made the stream. Parent and
            child would put the same noise on different sums, and their difference would
            have none.
        """
        if os.getpid() != self._process:
            raise NoiseReused
        drawn = np.empty(count + _SPARE, dtype=np.uint64)
        # Encrypted where it stays: no copy, and a block of zeros that fits a core's cache.
        target = drawn.data.cast("B")
        for start in range(0, 8 * count, len(_ZEROS)):
            size = min(len(_ZEROS), 8 * count - start)
            self._stream.update_into(_ZEROS[:size], target[start:])
        return drawn[:count]

    def __reduce__(self) -> str:
        raise TypeError("a secure stream is never stored or sent")


def secure() -> BitSource:
    """Returns a fresh cryptographic stream for noise and batch membership."""
    return SecureBits()


def seeded(seed: int, purpose: str) -> np.random.Generator:
    """Returns a repeatable generator for public choices; another purpose, another stream."""
    material = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(material, "little")))
