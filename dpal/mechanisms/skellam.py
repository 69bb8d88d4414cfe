"""Skellam noise, the difference of two Poisson numbers, drawn exactly from a cryptographic stream.

Sums of independent Skellam numbers are Skellam again, so several parties can each draw a share of
one noise, and what the honest ones drew has a law that is known without rounding. Shares of
discrete Gaussian noise do not add up like that.

A Poisson number is the first k whose distribution function is above a uniform real number. The
first 64 bits of that number decide it nearly always; where they do not, more bits are drawn and
the distribution function is computed to as many (`dpal.mechanisms.coins` does the same for yes
and no).

Source: Agarwal, Kairouz & Liu (2021), "The Skellam mechanism for differentially private federated
learning"; inversion by lazy comparison: Devroye (1986), ch. XV.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal import check
from dpal.mechanisms.coins import ERROR
from dpal.randomness import BitSource

Counts = NDArray[np.int64]

LARGEST_VARIANCE: Final = 20_000.0  # up to which tables are well within ERROR of the law

_WORD_BITS = 64
_SPARE_BITS = 64  # beyond what is compared: far more than a sum of positive terms loses
_BEYOND = 1e-30  # a chance after which tables end; what lies there is decided exactly


def skellam_noise(count: int, variance: float, *, rng: BitSource) -> Counts:
    """Draws (count,) independent whole numbers X - Y, both Poisson with mean variance / 2.

    Args:
      count: number of values.
      variance: of each, in (0, LARGEST_VARIANCE].
      rng: source of the noise.

    Raises:
      ParameterError: the variance is not in this range.
    """
    check.positive(variance=variance)
    check.within(0, LARGEST_VARIANCE, variance=variance)
    drawn = poisson_numbers(2 * count, variance / 2, rng=rng)
    return drawn[:count] - drawn[count:]


def poisson_numbers(count: int, mean: float, *, rng: BitSource) -> Counts:
    """Draws (count,) independent Poisson numbers of a mean in (0, LARGEST_VARIANCE / 2]."""
    table = _distribution_function(mean)
    words = rng.words(count)
    # The conversion to float64 rounds by 2**-53 at most, which ERROR covers, too.
    uniform = words.astype(np.float64) * 2.0**-_WORD_BITS
    least = np.searchsorted(table, uniform - ERROR, side="right")
    most = np.searchsorted(table, uniform + ERROR, side="right")
    numbers = least.astype(np.int64)
    for index in np.flatnonzero(least != most):
        numbers[index] = _first_above(int(words[index]), int(least[index]), mean, rng)
    return numbers


def _distribution_function(mean: float) -> NDArray[np.float64]:
    """(n,) chances of at most k, each within ERROR / 2 of the true one, until nothing is missing.

    The last one is above 1, so that a word near the end is decided by the law itself.
    """
    last = int(scipy.special.pdtrik(0.5, mean)) + 1
    while scipy.special.pdtrc(last, mean) > _BEYOND:
        last += max(16, last // 8)
    return np.append(scipy.special.pdtr(np.arange(last), mean), 2.0)


def _first_above(first: int, start: int, mean: float, rng: BitSource) -> int:
    """The first k, from `start` on, whose chance of at most k is above a lazy uniform number."""
    from mpmath import mp  # a tenth of a second to import, and hardly ever wanted

    number, bits, value = first, _WORD_BITS, start
    while True:
        with mp.workprec(bits + _SPARE_BITS):
            scaled = mp.ldexp(_at_most(value, mean), bits)
            # U lies in [number, number + 1) / 2**bits; the chance is off by far less than a part.
            slack = mp.ldexp(1, -_SPARE_BITS // 2)
            if number + 1 <= scaled - slack:
                return value
            if number >= scaled + slack:
                value += 1
                continue
        number = (number << _WORD_BITS) | int(rng.words(1)[0])
        bits += _WORD_BITS


def _at_most(value: int, mean: float) -> Any:
    """The chance that a Poisson number is at most `value`, by mpmath at its precision."""
    from mpmath import mp

    term = total = mp.mpf(1)
    for number in range(1, value + 1):
        term = term * mean / number
        total += term
    return total * mp.exp(-mp.mpf(mean))
