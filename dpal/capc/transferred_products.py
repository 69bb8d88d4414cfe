"""Products of a site's weights and the bits of queries, as shares, by oblivious transfers.

For each bit of a feature there are two rows (`dpal.capc.transfer_extension`), and who asks knows
the one that its bit chose. The site hashes both to a number for every label, and sends the first
less the second, plus its weight. Who asks adds this to its own hash where the bit is 1, which gives
its share of bit x weight; the site's is its first hash, negated. What the site sends is masked by
the hash that who asks cannot compute, so that who asks learns nothing; the site gets nothing.

Products of bit b are multiplied by 2**b, and so are needed modulo 2**(bits - b) alone: of the
higher ones fewer bytes are sent.

Source: Gilboa (1999), "Two party RSA key generation", Sec. 4.1; with correlated transfers as in
Asharov, Lindell, Schneider & Zohner (2013).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.capc.ring import Ring, to_ring
from dpal.capc.strict_sizes import FEATURE_BITS, bits_of
from dpal.capc.terms import Features
from dpal.capc.transfer_extension import FEATURES, RowHash
from dpal.randomness import Words

_LOW, _HIGH = np.uint32(16), np.uint32(24)


@dataclass(frozen=True, eq=False)
class HiddenDifferences:
    """What a site sends, its numbers in pieces. Uniform to who asks.

    Attributes:
      low: (queries, 8, features, labels) their lowest 16 bits.
      high: (queries, b, features, labels) the next 8, of the lowest b bits of a feature.
      top: (queries, c, features, labels) what is left.
    """

    low: NDArray[np.uint16]
    high: NDArray[np.uint8]
    top: NDArray[np.uint8]

    def numbers(self, query: int) -> Ring:
        """(8, features, labels) of one query."""
        numbers = self.low[query].astype(np.uint32)
        for piece, shift in ((self.high[query], _LOW), (self.top[query], _HIGH)):
            numbers[: len(piece)] |= piece.astype(np.uint32) << shift
        return np.asarray(numbers)


def feature_bits(queries: Features) -> NDArray[np.uint8]:
    """(queries, 8, features) bits, the lowest first; the last one counts -128."""
    return np.ascontiguousarray(bits_of(to_ring(queries), FEATURE_BITS).swapaxes(1, 2))


def site_products(
    rows: Words, secret: Words, weights: NDArray[np.int8], row_hash: RowHash, high: int, top: int
) -> tuple[HiddenDifferences, Ring]:
    """What a site sends, and its (queries, labels) shares.

    Args:
      rows: (queries * 8 * features, 2) its rows.
      secret: (2,) by which each is apart from the other one.
      weights: (labels, features).
      row_hash: of the pair.
      high: bits of a feature whose numbers have more than 16 bits.
      top: likewise, more than 24.
    """
    labels, features = weights.shape
    each = FEATURE_BITS * features
    queries = len(rows) // each
    shape = (FEATURE_BITS, features, labels)
    signed = to_ring(weights.T) * np.ones((FEATURE_BITS, 1, 1), dtype=np.uint32)
    signed[-1] = np.uint32(0) - signed[-1]
    low = np.empty((queries, *shape), dtype="<u2")
    highs, tops = (np.empty((queries, n, features, labels), np.uint8) for n in (high, top))
    shares = np.empty((queries, labels), dtype=np.uint32)
    for query in range(queries):  # one after the other, as hashes are 32 times as long as rows
        first = query * each
        own = rows[first : first + each]
        zero, one = (
            row_hash.numbers(part, FEATURES, first, labels).reshape(shape)
            for part in (own, own ^ secret)
        )
        shares[query] = np.uint32(0) - _weighed(zero)
        difference = zero - one
        difference += signed
        low[query] = difference.astype(np.uint16)
        highs[query] = (difference[:high] >> _LOW).astype(np.uint8)
        tops[query] = (difference[:top] >> _HIGH).astype(np.uint8)
    return HiddenDifferences(low, highs, tops), shares


def querier_products(
    rows: Words, bits: NDArray[np.uint8], hidden: HiddenDifferences, row_hash: RowHash
) -> Ring:
    """(queries, labels) shares of who asks.

    Args:
      rows: (queries * 8 * features, 2) its rows.
      bits: (queries, 8, features) that chose them.
      hidden: from the site.
      row_hash: of the pair.
    """
    queries, each, labels = len(bits), bits[0].size, hidden.low.shape[-1]
    shares = np.empty((queries, labels), dtype=np.uint32)
    for query in range(queries):
        first = query * each
        own = row_hash.numbers(rows[first : first + each], FEATURES, first, labels)
        numbers = hidden.numbers(query)
        numbers *= bits[query, :, :, None]
        numbers += own.reshape(numbers.shape)
        shares[query] = _weighed(numbers)
    return shares


def _weighed(numbers: Ring) -> Ring:
    """(labels,) sums of (8, features, labels), those of bit b times 2**b."""
    sums = numbers.sum(axis=1, dtype=np.uint32)
    places = np.arange(FEATURE_BITS, dtype=np.uint32)[:, None]
    return np.asarray((sums << places).sum(axis=0, dtype=np.uint32))
