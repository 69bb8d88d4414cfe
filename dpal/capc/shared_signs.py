"""The signs of numbers that two parties share, as shares again, with the help of a dealer.

The parties open their number z under a mask r that neither knows: y = z + r. With the top bit and
the other 31 bits of y apart, the sign of z is that of y, turned if r has the top bit, and turned
once more if the low bits of y are below those of r, which a distributed comparison finds. The
dealer knows r, and so would know z from y, **or from one party's share of the sign**: a share is
a function of keys that the dealer made. Whoever deals must see neither.

Source: Boyle et al. (2021), Sec. 4 (as in `dpal.capc.distributed_comparison`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dpal.capc.distributed_comparison import (
    Corrections,
    NodeGenerator,
    comparison_shares,
    deal_comparisons,
    root_seeds,
)
from dpal.capc.key_streams import KeyStream
from dpal.capc.ring import BITS, Ring
from dpal.randomness import Words

LEVELS: Final = BITS - 1

_TOP = np.uint32(1 << LEVELS)


@dataclass(frozen=True, eq=False)
class SignKeys:
    """One party's own part of n keys: uniform, and expanded from its seed.

    Attributes:
      masks: (n,) its part of the mask; to be added to its share before that is opened.
      roots: (n, 2) seeds of its trees.
      tops: (n,) its part of the mask's top bit.
    """

    masks: Ring
    roots: Words
    tops: Ring


@dataclass(frozen=True, eq=False)
class SignCorrections:
    """What both parties are told alike.

    Attributes:
      comparisons: of the low bits.
      tops: (n,) what the second party adds to its part of the top bit.
    """

    comparisons: Corrections
    tops: Ring

    def part(self, start: int, stop: int) -> SignCorrections:
        """Those of some of the numbers."""
        return SignCorrections(self.comparisons.part(start, stop), self.tops[start:stop])


def sign_keys(seed: bytes, purpose: str, count: int) -> SignKeys:
    """Expands a party's seed; the dealer does the same."""
    stream = KeyStream(seed, purpose)
    masks = stream.ring(count)
    return SignKeys(masks, root_seeds(stream.words(2 * count)), stream.ring(count))


def deal_signs(first: SignKeys, second: SignKeys, salt: bytes) -> SignCorrections:
    """Makes what both parties need beside their own parts."""
    masks = first.masks + second.masks
    tops = masks >> np.uint32(LEVELS)
    corrections = deal_comparisons(
        masks & ~_TOP,
        np.uint32(1) - (tops << np.uint32(1)),
        np.stack([first.roots, second.roots]),
        NodeGenerator(salt),
        levels=LEVELS,
    )
    return SignCorrections(corrections, tops - first.tops - second.tops)


def sign_shares(
    opened: Ring, party: int, keys: SignKeys, corrections: SignCorrections, salt: bytes
) -> Ring:
    """One party's shares: with the other's they add up to 1 where z >= 0, else to 0.

    Args:
      opened: (n,) z + r.
      party: 0 or 1.
      keys: its own.
      corrections: of both.
      salt: of the batch.
    """
    turned = keys.tops + comparison_shares(
        opened & ~_TOP, party, keys.roots, corrections.comparisons, NodeGenerator(salt)
    )
    constant = np.uint32(1)
    if party == 1:
        turned, constant = turned + corrections.tops, np.uint32(0)
    return np.where(opened < _TOP, constant - turned, turned)
