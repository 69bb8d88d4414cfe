"""Whole numbers modulo 2**32: what shares, masks and pads are made of.

numpy's 32-bit arithmetic on arrays wraps around, which is the arithmetic of this ring.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ring = NDArray[np.uint32]

BITS: Final = 32
MOST_FEATURES: Final = 1 << 14  # so many products of 8-bit numbers stay far below 2**31

_HALF = 16
_LOW = np.uint32((1 << _HALF) - 1)


def to_ring(values: NDArray[Any]) -> Ring:
    """Signed whole numbers, each as its residue."""
    return np.asarray(values, dtype=np.int64).astype(np.uint32)


def ring_product(left: Ring, right: Ring) -> Ring:
    """Matrix product of (n, d) and (d, k), d at most 2**20.

    By products of 16-bit halves in float64, which are exact, and which BLAS is quick at.
    """
    low, high = (left & _LOW).astype(np.float64), (left >> _HALF).astype(np.float64)
    other_low, other_high = (right & _LOW).astype(np.float64), (right >> _HALF).astype(np.float64)
    crossed = (low @ other_high + high @ other_low).astype(np.uint64)
    return ((low @ other_low).astype(np.uint64) + (crossed << np.uint64(_HALF))).astype(np.uint32)
