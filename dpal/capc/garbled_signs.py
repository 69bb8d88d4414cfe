"""The signs of numbers that a site and who asks share, as shares again, without a dealer.

A site garbles the addition of both shares, and who asks evaluates it: the sum is negative where its
top bit is set. Of each wire there are two labels of 128 bits, that of 1 apart from that of 0 by
the site's secret, and who asks knows the one that is true and not which it is. Rows of
`dpal.capc.transfer_extension` are such labels already, for the bits of its share. The bits of the
site's own share are put in by the site where it garbles, so that they need no labels that are
sent. XOR is free, and each carry costs one AND:

    carry' = carry + (a + carry) (b + carry), with + for XOR

which takes two halves of 16 bytes; the first one, whose carry is 0, takes one. The last label opens
one of two numbers: the site's uniform share of the outcome, taken from 0 or from 1. They are
ordered by a bit of the labels that is random (point-and-permute), so that the order tells nothing.

Source: Zahur, Rosulek & Evans (2015), "Two halves make a whole", Fig. 2. The site's secret of the
transfers is that of the garbling as well, which is why the hash must be circular: Guo, Katz, Wang
& Yu (2020), as in `dpal.capc.transfer_extension`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.capc.ring import Ring
from dpal.capc.strict_sizes import bits_of
from dpal.capc.transfer_extension import RowHash
from dpal.randomness import Words

Bits = NDArray[np.uint8]

_ONE = np.uint64(1)


@dataclass(frozen=True, eq=False)
class GarbledTables:
    """What a site sends of n comparisons of numbers of `bits` bits. Uniform to who asks.

    Attributes:
      first: (n, 2) words, of the first carry.
      carries: (bits - 2, n, 2, 2) words, two halves of each other one.
      outcomes: (n, 2) the outcome less the site's share, for both outcomes, each under a label.
    """

    first: Words
    carries: Words
    outcomes: Ring

    def shaped(self, *shape: int) -> GarbledTables:
        """The same with n as several dimensions."""
        return GarbledTables(
            self.first.reshape(*shape, 2),
            self.carries.reshape(-1, *shape, 2, 2),
            self.outcomes.reshape(*shape, 2),
        )


def wire_labels(rows: Words, comparisons: int, bits: int) -> Words:
    """(comparisons, bits, 2) rows as labels, without those that pad the last byte."""
    return rows[: comparisons * bits].reshape(comparisons, bits, 2)


def garble_signs(
    numbers: Ring, shares: Ring, labels: Words, secret: Words, row_hash: RowHash, purpose: int
) -> GarbledTables:
    """Garbles whether sums of both parties' numbers are at least 0.

    Args:
      numbers: (n,) of the site, of which the lowest bits count.
      shares: (n,) uniform, and serving nothing else: its shares of the outcomes.
      labels: (n, bits, 2) of 0, for the bits of who asks, the lowest first.
      secret: (2,) by which those of 1 are apart; its lowest bit is 1.
      row_hash: of the pair.
      purpose: as in `RowHash.words`.
    """
    count, bits = labels.shape[:2]
    own = bits_of(numbers, bits)
    hashed = IndexedHash(row_hash, purpose, count)
    wire = labels[:, 0]
    zero, one = hashed(wire, 0), hashed(wire ^ secret, 0)
    first = zero ^ one ^ _where(own[:, 0], secret)
    carry = zero ^ _where(_colour(wire), first)
    carries = np.empty((bits - 2, count, 2, 2), dtype="<u8")
    for place in range(1, bits - 1):
        left, right = labels[:, place] ^ carry, carry ^ _where(own[:, place], secret)
        zero, one = hashed(left, 2 * place), hashed(left ^ secret, 2 * place)
        by_site = zero ^ one ^ _where(_colour(right), secret)
        half = zero ^ _where(_colour(left), by_site)
        zero, one = hashed(right, 2 * place + 1), hashed(right ^ secret, 2 * place + 1)
        by_asker = zero ^ one ^ left
        carry = carry ^ half ^ zero ^ _where(_colour(right), zero ^ one)
        carries[place - 1, :, 0], carries[place - 1, :, 1] = by_site, by_asker
    negative = labels[:, bits - 1] ^ carry ^ _where(own[:, bits - 1], secret)
    masks = [hashed.numbers(label, 2 * bits) for label in (negative, negative ^ secret)]
    return GarbledTables(first, carries, _ordered(masks, shares, _colour(negative)))


def _ordered(masks: list[Ring], shares: Ring, colours: Bits) -> Ring:
    """(n, 2) the outcomes less shares, under masks, each in the place of its label's colour."""
    found = np.stack([masks[0] + np.uint32(1) - shares, masks[1] - shares], axis=1)
    return np.where(colours[:, None] == 1, found[:, ::-1], found)


def evaluate_signs(tables: GarbledTables, labels: Words, row_hash: RowHash, purpose: int) -> Ring:
    """(n,) shares of who asks: with the site's they add up to 1 where the sum is >= 0, else to 0.

    Args:
      tables: from the site.
      labels: (n, bits, 2) of the bits of its numbers.
      row_hash: of the pair.
      purpose: as the site's.
    """
    count, bits = labels.shape[:2]
    hashed = IndexedHash(row_hash, purpose, count)
    negative = top_labels(tables, labels, hashed)
    chosen = tables.outcomes[np.arange(count), _colour(negative)]
    return np.asarray(chosen - hashed.numbers(negative, 2 * bits))


def top_labels(tables: GarbledTables, labels: Words, hashed: IndexedHash) -> Words:
    """(n, 2) labels of the top bits of the sums."""
    wire = labels[:, 0]
    carry = hashed(wire, 0) ^ _where(_colour(wire), tables.first)
    for place in range(1, labels.shape[1] - 1):
        left, right = labels[:, place] ^ carry, carry
        by_site, by_asker = tables.carries[place - 1, :, 0], tables.carries[place - 1, :, 1]
        half = hashed(left, 2 * place) ^ _where(_colour(left), by_site)
        other = hashed(right, 2 * place + 1) ^ _where(_colour(right), by_asker ^ left)
        carry = carry ^ half ^ other
    return np.asarray(labels[:, -1] ^ carry)


@dataclass(frozen=True)
class IndexedHash:
    """Hashes of labels, of which no two share an index: of `count` comparisons, gate by gate."""

    row_hash: RowHash
    purpose: int
    count: int

    def __call__(self, labels: Words, gate: int) -> Words:
        """(n, 2) words, of the labels of one wire of each comparison."""
        return self.row_hash.words(labels, self.purpose, gate * self.count)[:, 0]

    def numbers(self, labels: Words, gate: int) -> Ring:
        """(n,) numbers, likewise."""
        return self.row_hash.numbers(labels, self.purpose, gate * self.count, 1)[:, 0]


def _colour(labels: Words) -> Bits:
    """(n,) the bit of a label that says nothing of its value."""
    return (labels[:, 0] & _ONE).astype(np.uint8)


def _where(bits: Bits, words: Words) -> Words:
    """(n, 2) the words where the bit is set, else 0."""
    return bits[:, None].astype(np.uint64) * words
