"""Gaussian noise on a symmetric matrix, in its isometric form.

In the coordinates (a_ii, sqrt(2) a_ij), i < j, the Frobenius norm of a symmetric matrix is the
Euclidean norm. Noise of one standard deviation s in every one of them is the Gaussian mechanism for
matrices that differ by s / noise multiplier in Frobenius norm. Entries off the diagonal then have
noise s / sqrt(2).

The other two ways are worse. A triangle of equal variances (Analyze Gauss) has sqrt(2) more noise
off the diagonal for the same guarantee, as a change there is seen in one coordinate and not in two.
A full matrix of independent entries, which is made symmetric afterwards, has the noise of this one
and draws twice as much of it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpal.mechanisms.gaussian import noisy_sum
from dpal.randomness import BitSource

Floats = NDArray[np.float64]


def noisy_symmetric(total: Floats, scale: float, *, rng: BitSource) -> Floats:
    """Adds noise to a symmetric matrix, on a public grid.

    Args:
      total: (width, width) symmetric; private.
      scale: standard deviation of the noise in every isometric coordinate.
      rng: source of the noise.

    Returns:
      (width, width) symmetric; not necessarily positive.
    """
    above = np.triu_indices(len(total))
    weight = np.where(above[0] == above[1], 1.0, math.sqrt(2))
    noisy = noisy_sum(total[above] * weight, scale, rng=rng) / weight
    released = np.zeros_like(total)
    released[above] = noisy
    return released + np.triu(released, 1).T
