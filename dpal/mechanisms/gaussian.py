"""Gaussian noise from a cryptographic stream."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpal.randomness import BitSource

_UNIT = 2.0**-53


def standard_normal(count: int, *, rng: BitSource) -> NDArray[np.float64]:
    """Draws (count,) independent standard normal values in float64.

    Source: Box & Muller (1958). With 53-bit uniforms the largest possible value is
    8.65; the missing tail has mass 1e-17 per value.
    """
    pairs = (count + 1) // 2
    words = rng.words(2 * pairs)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * _UNIT
    radius = np.sqrt(-2.0 * np.log(uniform[:pairs]))
    angle = (2.0 * math.pi) * uniform[pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def noisy_sum(total: NDArray[np.float64], scale: float, *, rng: BitSource) -> NDArray[np.float64]:
    """Adds noise of standard deviation `scale` and rounds the result to a public grid.

    The grid (scale / 2**20) is coarse beside the last bits of float64, so that the low
    bits of the released number carry nothing about the noiseless sum, and fine beside
    the noise: it adds a relative variance of about 1e-13.
    """
    step = scale * 2.0**-20
    noisy = total + scale * standard_normal(total.size, rng=rng)
    return np.rint(noisy / step) * step
