"""Oblivious transfers of 128 keys: who chooses learns one of two of each, and nobody which.

They stand at the beginning of everything that a site and who asks compute without a dealer
(`dpal.capc.transfer_extension` makes as many more of them as are needed, by AES alone). Points are
of the prime-order group of edwards25519, by libsodium, which refuses all others.

Source: Chou & Orlandi (2015), "The simplest protocol for oblivious transfer", Fig. 1, for parties
that keep to the protocol.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
from nacl import bindings
from nacl.exceptions import CryptoError
from numpy.typing import NDArray

from dpal.capc.key_streams import SEED_BYTES, KeyStream
from dpal.errors import ProtocolError

TRANSFERS: Final = 128
POINT_BYTES: Final = 32

Bytes = NDArray[np.uint8]
Choices = NDArray[np.uint8]  # of 0 and 1

_SCALAR_WORDS: Final = 8  # reduced from 64 bytes, which is uniform but for 2**-256


def offer_keys(seed: bytes) -> Bytes:
    """(32,) the point that begins it, of who offers the keys."""
    return _read(bindings.crypto_scalarmult_ed25519_base_noclamp(_scalars(seed, 1)[0]))


def choose_keys(offer: Bytes, choices: Choices, seed: bytes) -> tuple[Bytes, Bytes]:
    """Chooses one key of each two.

    Args:
      offer: (32,) from who offers them.
      choices: (128,).
      seed: uniform; serves nothing else.

    Returns:
      (128, 32) points for who offers them, and the (128, 32) keys chosen.

    Raises:
      ProtocolError: the offer is no point of the group.
    """
    first, points, keys = offer.tobytes(), [], []
    for place, scalar in enumerate(_scalars(seed, TRANSFERS)):
        plain = bindings.crypto_scalarmult_ed25519_base_noclamp(scalar)
        shifted = _added(first, plain)
        point = shifted if choices[place] else plain
        points.append(point)
        keys.append(_key(place, first, point, _multiplied(scalar, first)))
    return _rows(points), _rows(keys)


def offered_keys(seed: bytes, chosen: Bytes) -> Bytes:
    """(2, 128, 32) the keys, those of choice 0 first.

    Args:
      seed: as for `offer_keys`.
      chosen: (128, 32) points from who chose.

    Raises:
      ProtocolError: one is no point of the group.
    """
    scalar = _scalars(seed, 1)[0]
    first = bindings.crypto_scalarmult_ed25519_base_noclamp(scalar)
    twice = _multiplied(scalar, first)
    keys: tuple[list[bytes], list[bytes]] = ([], [])
    for place, row in enumerate(chosen):
        point = row.tobytes()
        shared = _multiplied(scalar, point)
        keys[0].append(_key(place, first, point, shared))
        keys[1].append(_key(place, first, point, _subtracted(shared, twice)))
    return np.stack([_rows(keys[0]), _rows(keys[1])])


def _scalars(seed: bytes, count: int) -> list[bytes]:
    drawn = KeyStream(seed, "scalars").words(_SCALAR_WORDS * count).reshape(count, -1)
    return [bindings.crypto_core_ed25519_scalar_reduce(row.tobytes()) for row in drawn]


def _key(place: int, offer: bytes, point: bytes, shared: bytes) -> bytes:
    said = b"dpal capc 1/transfer/" + place.to_bytes(2, "little") + offer + point + shared
    return hashlib.sha256(said).digest()


def _multiplied(scalar: bytes, point: bytes) -> bytes:
    try:
        return bindings.crypto_scalarmult_ed25519_noclamp(scalar, point)
    except CryptoError as error:
        raise _none() from error


def _added(point: bytes, other: bytes) -> bytes:
    try:
        return bindings.crypto_core_ed25519_add(point, other)
    except CryptoError as error:
        raise _none() from error


def _subtracted(point: bytes, other: bytes) -> bytes:
    return bindings.crypto_core_ed25519_sub(point, other)


def _none() -> ProtocolError:
    return ProtocolError("a party sent a point for oblivious transfers that is none of the group")


def _read(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


def _rows(parts: list[bytes]) -> Bytes:
    return _read(b"".join(parts)).reshape(len(parts), SEED_BYTES)
