"""Discrete Laplace noise on an integer grid, sampled exactly.

Floating-point Laplace noise identifies the noiseless value most of the time (Mironov,
2012). Scores are therefore rounded to a grid first, and the noise is an integer drawn
with integer arithmetic only.

Source: Canonne, Kamath & Steinke (2020), "The discrete Gaussian for differential
privacy", Algorithms 1 and 2.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.events import LAPLACE_GRID
from dpal.errors import ParameterError
from dpal.mechanisms.poisson_sampling import uniform_below
from dpal.randomness import BitSource

_LARGEST_DENOMINATOR = 1 << 20


def laplace_noise(
    count: int, epsilon: float, *, rng: BitSource, sensitivity: int = LAPLACE_GRID
) -> NDArray[np.int64]:
    """Draws noise for whole numbers of a given sensitivity.

    Args:
      count: number of values.
      epsilon: privacy loss of one noisy value, in (0, 64].
      rng: source of random words.
      sensitivity: most that a value moves; that of scores, on the grid 0..LAPLACE_GRID, is the
        whole range.

    Returns:
      (count,) integers y with probability proportional to exp(-|y| * e / sensitivity), where e
      is `epsilon` rounded down to a multiple of 2**-20.

    Raises:
      ParameterError: epsilon is outside of (0, 64] or too small for the grid.
    """
    check.within(0, 64, epsilon=epsilon)
    rate = _fraction_below(epsilon)
    # scale = numerator / divisor: the sampler draws at scale `numerator` and divides.
    numerator, divisor = sensitivity * rate.denominator, rate.numerator
    noise = np.empty(count, dtype=np.int64)
    open_slots = np.arange(count)
    while open_slots.size:
        magnitude = _geometric(open_slots.size, numerator, rng=rng) // divisor
        negative = rng.words(open_slots.size) >> np.uint64(63) == 1
        accepted = ~(negative & (magnitude == 0))  # zero must not be counted twice
        signed = np.where(negative, -magnitude, magnitude)
        noise[open_slots[accepted]] = signed[accepted]
        open_slots = open_slots[~accepted]
    return noise


def _fraction_below(epsilon: float) -> Fraction:
    """Rounds epsilon down to a multiple of 2**-20: rounding must not spend more."""
    rate = Fraction(math.floor(epsilon * _LARGEST_DENOMINATOR), _LARGEST_DENOMINATOR)
    if rate <= 0:
        raise ParameterError(f"epsilon {epsilon:g} of one selection is too small to be drawn")
    return rate


def _geometric(count: int, scale: int, *, rng: BitSource) -> NDArray[np.int64]:
    """Draws (count,) integers x >= 0 with probability proportional to exp(-x / scale)."""
    remainder = np.empty(count, dtype=np.int64)
    open_slots = np.arange(count)
    while open_slots.size:
        bound = np.full(open_slots.size, scale, dtype=np.uint64)
        proposal = uniform_below(bound, rng=rng)
        accepted = _bernoulli_exp(proposal, scale, rng=rng)
        remainder[open_slots[accepted]] = proposal[accepted].astype(np.int64)
        open_slots = open_slots[~accepted]
    wholes = np.zeros(count, dtype=np.int64)
    running = np.arange(count)
    while running.size:
        ones = np.full(running.size, scale, dtype=np.uint64)
        running = running[_bernoulli_exp(ones, scale, rng=rng)]
        wholes[running] += 1
    return remainder + scale * wholes


def _bernoulli_exp(
    numerators: NDArray[np.uint64], denominator: int, *, rng: BitSource
) -> NDArray[np.bool_]:
    """Says yes with probability exp(-numerator / denominator), for ratios in [0, 1].

    Counts how long a run of Bernoulli(ratio / k) draws lasts, k = 1, 2, ...; the run's
    length is even with exactly this probability (the alternating series of exp).
    """
    length = np.zeros(numerators.size, dtype=np.int64)
    running = np.arange(numerators.size)
    k = 1
    while running.size:
        bound = np.full(running.size, denominator * k, dtype=np.uint64)
        running = running[uniform_below(bound, rng=rng) < numerators[running]]
        length[running] += 1
        k += 1
    even: NDArray[np.bool_] = length % 2 == 0
    return even
