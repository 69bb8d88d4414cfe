"""A histogram of votes with exact, discrete Laplace noise on every count."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.events import LAPLACE_GRID, NoisyCounts
from dpal.errors import ParameterError
from dpal.mechanisms.discrete_laplace import laplace_noise
from dpal.randomness import BitSource


def noisy_counts(
    counts: NDArray[np.int64], event: NoisyCounts, *, rng: BitSource
) -> NDArray[np.float64]:
    """Releases a histogram to which every record gave at most one vote.

    Every count gets noise of its own, also one of 0: which counts are empty is private.

    Args:
      counts: (n,) whole numbers of votes.
      event: the noise, as it is charged; `l0_sensitivity` counts are each charged once.
      rng: source of the noise.

    Returns:
      (n,) noisy counts, multiples of 1 / LAPLACE_GRID; exact in float64.

    Raises:
      ParameterError: a count is negative or too large to be kept exactly.
    """
    if counts.size and not 0 <= counts.min() <= counts.max() < 1 << 36:
        raise ParameterError.before_release("votes are counted from 0 to 2**36")
    noise = laplace_noise(counts.size, event.epsilon, rng=rng)
    # Whole numbers of grid steps: no floating-point sum could tell the noiseless count.
    return np.asarray((counts * LAPLACE_GRID + noise) / LAPLACE_GRID)
