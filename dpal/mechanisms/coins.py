"""Yes-or-no draws whose chance is a real number, exact however small the chance is.

A uniform real number U has infinitely many bits; a chance p is known to float64, and by
`mpmath` to any precision. U < p is decided by the first 64 bits of U nearly always, and by as
many more as it takes else. No outcome that p allows is impossible, and none is likelier than p.

Source: lazy comparison of random bits with a real number; see Devroye (1986), "Non-uniform
random variate generation", ch. XV.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.mechanisms.poisson_sampling import uniform_below as uniform_below
from dpal.randomness import BitSource, Words

Floats = NDArray[np.float64]
Exact = Callable[[int], Any]  # (index) -> the chance as an mpmath number, at the precision set

# Chances are computed with a few roundings of relative size 2e-16; this is thousands of times
# as much, and 2e-12 of all draws ask for the exact chance.
ERROR: Final = 1e-12

_WORD_BITS = 64
_SPARE_BITS = 64  # beyond what is compared: far more than an evaluation of mpmath loses


def below(
    chances: Floats, exact: Exact, *, rng: BitSource, words: Words | None = None
) -> NDArray[np.bool_]:
    """Says yes with given chances.

    Args:
      chances: (n,) in [0, 1], each within ERROR of the true one.
      exact: the true chance of one index, by mpmath at its current precision.
      rng: source of random words.
      words: (n,) first words of the uniform numbers, where they were drawn already.

    Returns:
      (n,) independent answers; answer i is yes with chance `exact(i)`.
    """
    first = rng.words(chances.size) if words is None else words
    # The conversion to float64 rounds by 2**-53 at most, which ERROR covers, too.
    uniform = first.astype(np.float64) * 2.0**-_WORD_BITS
    said: NDArray[np.bool_] = uniform < chances
    for index in np.flatnonzero(np.abs(uniform - chances) <= ERROR):
        said[index] = _compare(int(first[index]), int(index), exact, rng)
    return said


def normal_below(margins: Floats, *, rng: BitSource) -> NDArray[np.bool_]:
    """Whether a fresh standard normal value lies below each margin.

    Args:
      margins: (n,) finite.
      rng: source of random words.

    Returns:
      (n,) answers, yes with chance Phi(margin), however near 0 or 1 that is.
    """

    def exact(index: int) -> Any:
        from mpmath import mp

        return mp.ncdf(float(margins[index]))

    return below(np.asarray(scipy.special.ndtr(margins)), exact, rng=rng)


def _compare(first: int, index: int, exact: Exact, rng: BitSource) -> bool:
    """Whether the uniform number that begins with these bits is below an exact chance."""
    from mpmath import mp  # a tenth of a second to import, and hardly ever wanted

    number, bits = first, _WORD_BITS
    while True:
        with mp.workprec(bits + _SPARE_BITS):
            scaled = mp.ldexp(exact(index), bits)
            # U lies in [number, number + 1) / 2**bits; the chance is off by far less than a part.
            slack = mp.ldexp(1, -_SPARE_BITS // 2)
            if number + 1 <= scaled - slack:
                return True
            if number >= scaled + slack:
                return False
        number = (number << _WORD_BITS) | int(rng.words(1)[0])
        bits += _WORD_BITS
