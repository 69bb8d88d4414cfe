"""As many oblivious transfers as are needed from 128 of them, by AES alone.

Who asks has choice bits x_1 ... x_m, and a site has one secret D of 128 bits. From 128 keys of base
transfers, one message gives who asks uniform rows t_i and the site the rows q_i = t_i + x_i D, with
+ bit by bit. Of the two rows q_i and q_i + D, who asks knows the one that it chose; the other is
hidden by D, of which it knows nothing. The site does not learn x_i.

What is done with a row is done with its hash: AES under a fixed public key, applied twice and with
an index between, which is (circular) correlation robust for an ideal permutation. No index is used
twice with one D.

Source: Ishai, Kilian, Nissim & Petrank (2003), "Extending oblivious transfers efficiently", in the
form of Asharov, Lindell, Schneider & Zohner (2013), "More efficient oblivious transfer and
extensions for faster secure computation"; the hash is TMMO of Guo, Katz, Wang & Yu (2020), as in
`dpal.capc.distributed_comparison`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from dpal.capc.base_transfers import TRANSFERS, Bytes, Choices
from dpal.capc.ring import Ring
from dpal.randomness import Words

ROWS_OF_A_BYTE: Final = 8
FEATURES, OUTCOMES, BALLOTS = 0, 1, 2  # what transfers of a batch are for: no two share a stream

_WORDS: Final = TRANSFERS // 64
_BLOCK_NUMBERS: Final = 4  # of 32 bits
_ROOM: Final = 16  # bytes: update_into asks for the room of one more block
# One round each of swapping bits, pairs and nibbles about the diagonal of a square of 8 x 8 bits.
_SWAPS: Final = (
    (7, 0x00AA00AA00AA00AA),
    (14, 0x0000CCCC0000CCCC),
    (28, 0x00000000F0F0F0F0),
)


def extended_choices(keys: Bytes, choices: Choices, purpose: int) -> tuple[Bytes, Words]:
    """What who asks sends for its choices, and the rows that it keeps.

    Args:
      keys: (2, 128, 32) of base transfers that it offered.
      choices: (m,) bits, m a multiple of 8.
      purpose: a number that no other call with these keys has.

    Returns:
      (128, m / 8) bytes, and (m, 2) words.
    """
    length = choices.size // ROWS_OF_A_BYTE
    own, other = (_columns(part, purpose, length) for part in keys)
    sent = own ^ other ^ np.packbits(choices, bitorder="little")
    return sent, transposed_bits(own)


def extended_rows(keys: Bytes, secret: Words, sent: Bytes, purpose: int) -> Words:
    """(m, 2) the site's rows: those of who asks, with the secret added where it chose 1.

    Args:
      keys: (128, 32) that the bits of its secret chose.
      secret: (2,) words.
      sent: (128, m / 8) from who asks.
      purpose: as there.
    """
    columns = _columns(keys, purpose, sent.shape[1])
    columns[_bits(secret) == 1] ^= sent[_bits(secret) == 1]
    return transposed_bits(columns)


def secret_choices(secret: Words) -> Choices:
    """(128,) the bits of a secret, which choose the keys of base transfers."""
    return _bits(secret)


def transposed_bits(columns: Bytes) -> Words:
    """(8 n, 2) rows of 128 bits, from their (128, n) columns."""
    length = columns.shape[1]
    squares = np.ascontiguousarray(columns.T).reshape(length, -1).view("<u8")
    for shift, mask in _SWAPS:
        moved = (squares ^ (squares >> np.uint64(shift))) & np.uint64(mask)
        squares ^= moved
        moved <<= np.uint64(shift)
        squares ^= moved
    rows = squares.view(np.uint8).reshape(length, TRANSFERS // 8, ROWS_OF_A_BYTE).swapaxes(1, 2)
    return np.ascontiguousarray(rows).reshape(ROWS_OF_A_BYTE * length, -1).view("<u8")


@dataclass(frozen=True)
class RowHash:
    """What makes of a row numbers that tell nothing of it, or of what it is correlated with.

    Attributes:
      key: 16 bytes, public; of one pair of parties in one batch.
    """

    key: bytes

    @classmethod
    def of(cls, offer: Bytes, chosen: Bytes) -> RowHash:
        """Under a key that follows from the points of both parties."""
        said = b"dpal capc 1/rows/" + offer.tobytes() + chosen.tobytes()
        return cls(hashlib.sha256(said).digest()[:16])

    @cached_property
    def _cipher(self) -> CipherContext:
        return Cipher(algorithms.AES128(self.key), modes.ECB()).encryptor()  # noqa: S305

    def words(self, rows: Words, purpose: int, first: int = 0, blocks: int = 1) -> Words:
        """(m, blocks, 2) words, of (m, 2) rows.

        Args:
          rows: of one party.
          purpose: what for; no other use of one secret has it, but for other indices.
          first: index of the first row.
          blocks: of each row.
        """
        once = self._encrypted(np.ascontiguousarray(rows))
        mixed = np.empty((len(rows), blocks, _WORDS), dtype="<u8")
        index = np.arange(first, first + len(rows), dtype=np.uint64)
        use = np.uint64(purpose << 32) + np.arange(blocks, dtype=np.uint64)
        np.bitwise_xor(once[:, None, 0], index[:, None], out=mixed[..., 0])
        np.bitwise_xor(once[:, None, 1], use, out=mixed[..., 1])
        hashed = self._encrypted(mixed)
        hashed ^= once[:, None]
        return hashed

    def numbers(self, rows: Words, purpose: int, first: int, count: int) -> Ring:
        """(m, count) numbers of the ring, of (m, 2) rows; as `words`."""
        blocks = -(-count // _BLOCK_NUMBERS)
        return (
            self.words(rows, purpose, first, blocks).view("<u4").reshape(len(rows), -1)[:, :count]
        )

    def _encrypted(self, blocks: Words) -> Words:
        target = np.empty(blocks.nbytes + _ROOM, dtype=np.uint8)
        self._cipher.update_into(blocks.data.cast("B"), target.data)
        return target[: blocks.nbytes].view("<u8").reshape(blocks.shape)


def _columns(keys: Bytes, purpose: int, length: int) -> Bytes:
    """(128, length) uniform bytes, a row for each key: AES-256 in counter mode."""
    start, zeros = purpose.to_bytes(8, "big") + bytes(8), bytes(length)
    parts = [
        Cipher(algorithms.AES256(key.tobytes()), modes.CTR(start)).encryptor().update(zeros)
        for key in keys
    ]
    return np.frombuffer(bytearray(b"".join(parts)), np.uint8).reshape(len(keys), length)


def _bits(secret: Words) -> Choices:
    return np.unpackbits(secret.astype("<u8").view(np.uint8), bitorder="little")
