"""Independent yes/no draws and uniform integers, exact on 64-bit words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.randomness import BitSource

_WORD = 1 << 64


def include(count: int, rate: float, *, rng: BitSource) -> NDArray[np.intp]:
    """Draws a Poisson subsample.

    Args:
      count: number of records.
      rate: chance of each record, independently of all others, in [0, 1].
      rng: source of random words.

    Returns:
      Indices of the included records, ascending, shape (n_included,). The chance is
      floor(rate * 2**64) / 2**64: never above `rate`, hence on the private side.
    """
    check.within(0, 1, rate=rate)
    if rate == 1:
        return np.arange(count, dtype=np.intp)
    # `rate` has 53 significant bits, so this product is exact before the floor.
    threshold = np.uint64(int(rate * _WORD))
    return np.flatnonzero(rng.words(count) < threshold)


def uniform_below(bounds: NDArray[np.uint64], *, rng: BitSource) -> NDArray[np.uint64]:
    """Draws one uniform integer in [0, bound) for every bound, without modulo bias.

    Args:
      bounds: (n,), each between 1 and 2**63.
      rng: source of random words.

    Returns:
      (n,) unsigned integers.
    """
    # Accept words below the largest multiple of the bound; ((2**64 - 1) - r + 1) with
    # r = 2**64 mod bound needs no 65-bit number when written with the wrapped negation.
    remainder = (np.uint64(0) - bounds) % bounds
    largest = np.uint64(_WORD - 1) - remainder
    drawn = rng.words(bounds.size)
    rejected = np.flatnonzero(drawn > largest)
    while rejected.size:
        drawn[rejected] = rng.words(rejected.size)
        rejected = rejected[drawn[rejected] > largest[rejected]]
    return drawn % bounds
