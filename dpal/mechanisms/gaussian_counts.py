"""Counts of records with Gaussian noise. Accounting: `NoisyFigures`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.events import NoisyFigures
from dpal.mechanisms.gaussian import noisy_sum
from dpal.randomness import BitSource

Counts = NDArray[np.int64]


def gaussian_counts(counts: Counts, event: NoisyFigures, *, rng: BitSource) -> Counts:
    """Adds the noise of an event to each count, and rounds to whole numbers.

    Args:
      counts: (n,) or of any shape; private. One record moves `event.counts_moved` of them by one.
      event: how much noise.
      rng: source of the noise.

    Returns:
      The same shape; counts may be negative, as cutting them off would bias every sum.
    """
    noisy = noisy_sum(counts.ravel().astype(np.float64), event.noise, rng=rng)
    return np.asarray(np.rint(noisy).astype(np.int64).reshape(counts.shape))


def gaussian_sum(total: float, event: NoisyFigures, *, rng: BitSource) -> float:
    """Adds the noise of an event to a sum to which one record adds between 0 and 1.

    Args:
      total: private.
      event: how much noise.
      rng: source of the noise.
    """
    return float(noisy_sum(np.array([total]), event.noise, rng=rng)[0])
