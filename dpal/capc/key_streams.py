"""Streams of uniform numbers that the holders of one key draw alike.

A key serves one stream: what it is for, and which batch, go into it, so that no two uses of a
secret ever draw the same numbers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from numpy.typing import NDArray

from dpal.capc.ring import Ring
from dpal.randomness import BitSource, Words

SEED_BYTES: Final = 32


def derived_key(secret: bytes, purpose: str, number: int = 0) -> bytes:
    """A key for one purpose and one number, from a uniform secret of 32 bytes.

    Source: HKDF-Expand with SHA-256, RFC 5869.
    """
    info = f"dpal capc 1/{purpose}/{number}".encode()
    return HKDFExpand(algorithm=SHA256(), length=SEED_BYTES, info=info).derive(secret)


class KeyStream:
    """AES-256 in counter mode under a key that serves nothing else."""

    def __init__(self, secret: bytes, purpose: str, number: int = 0) -> None:
        key = derived_key(secret, purpose, number)
        self._stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def ring(self, *shape: int) -> Ring:
        """The next uniform numbers of the ring, in a given shape."""
        return np.frombuffer(self._bytes(4 * _size(shape)), dtype="<u4").reshape(shape)

    def words(self, count: int) -> Words:
        """The next `count` uniform 64-bit words."""
        return np.frombuffer(self._bytes(8 * count), dtype="<u8")

    def _bytes(self, count: int) -> bytes:
        return self._stream.update(bytes(count))


def fresh_seed(rng: BitSource) -> bytes:
    """A uniform seed of 32 bytes."""
    words: NDArray[np.uint64] = rng.words(SEED_BYTES // 8)
    return words.tobytes()


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
