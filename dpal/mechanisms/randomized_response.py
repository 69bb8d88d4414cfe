"""Yes/no answers of single records: randomised response anchored at the blank record.

The answer of a record whose content is blanked has a public rate c. A wanted record
says yes more often than that, any other record less often, each as far as a loss of
epsilon allows.

Source: randomised response, Warner (1965). The rates here are corners of a linear program
(most utility, four bounded ratios per record), so no other answer of a single record has
more of any utility that adds up over records.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.events import PURE_EPSILONS
from dpal.errors import ParameterError
from dpal.randomness import BitSource

_WORD = 1 << 64
_CHUNK = 1 << 15  # answers drawn at once; their words fit a core's second-level cache
_SMALLEST_BLANK = 2.0**-32
_DIGITS = 53  # significant bits of a float


def anchored_rates(epsilon: float, blank: float) -> tuple[float, float]:
    """Finds the rates furthest from `blank` whose answers cost at most `epsilon`.

    Args:
      epsilon: bound on the loss of one answer against the blank record (natural log,
        zero-out adjacency), in PURE_EPSILONS.
      blank: rate of yes of a blank record, public, between 2**-32 and 1 - 2**-32.

    Returns:
      (above, below) = (min(e^eps c, 1 - e^-eps (1 - c)), max(e^-eps c, 1 - e^eps (1 - c)))
      for c = blank, each rounded towards c. Both are multiples of 2**-64, so `answers`
      draws them exactly, and all four ratios above / c, below / c, (1 - above) / (1 - c)
      and (1 - below) / (1 - c) lie in [e^-eps, e^eps] as real numbers.

    Raises:
      ParameterError: a parameter is outside of its range.

    >>> anchored_rates(math.log(2), 0.25)
    (0.49999999999999994, 0.12500000000000003)
    """
    check.within(*PURE_EPSILONS, epsilon=epsilon)
    check.within(_SMALLEST_BLANK, 1 - _SMALLEST_BLANK, blank=blank)
    # The float exponential is off by less than one unit in its last place, so its lower
    # neighbour is at most e^eps; everything after it is exact.
    growth = Fraction(max(1.0, math.nextafter(math.exp(epsilon), 0.0)))
    yes = Fraction(blank)
    no = 1 - yes
    # Both exact rates lie on their side of c. Rounding may carry them past it by 2**-53 (by
    # 2**-64 for a small c), which moves a ratio by at most 2**-21: below the smallest epsilon.
    above = _float_words_below(min(growth * yes, 1 - no / growth))
    below = _float_words_above(max(yes / growth, 1 - growth * no))
    return math.ldexp(above, -64), math.ldexp(below, -64)


def randomized_responses(
    wanted: NDArray[np.bool_], *, above: float, below: float, rng: BitSource
) -> NDArray[np.bool_]:
    """Draws one independent yes/no answer per record.

    Args:
      wanted: (n,), whether a record's own content asks for a yes.
      above: rate of yes where wanted, strictly between 0 and 1.
      below: rate of yes elsewhere, strictly between 0 and 1.
      rng: source of random words.

    Returns:
      (n,) answers. The rates drawn are floor(above * 2**64) / 2**64 and
      ceil(below * 2**64) / 2**64.

    Raises:
      ParameterError: a rate is outside of its range, or the first rate drawn would be
        less than the second. Nothing was drawn.
    """
    check.inside(0, 1, above=above, below=below)
    # The blank record's rate lies between the two. Moving `above` down and `below` up
    # moves both towards it, and with them their ratios (of yes and of no) towards 1:
    # a bound that holds for the rates as given holds for the rates as drawn.
    if_wanted = np.uint64(math.floor(Fraction(above) * _WORD))
    otherwise = np.uint64(math.ceil(Fraction(below) * _WORD))
    if not if_wanted >= otherwise:
        raise ParameterError(f"above must be at least below as drawn, got {above!r}, {below!r}")
    drawn = np.empty(wanted.size, dtype=np.bool_)
    for start in range(0, wanted.size, _CHUNK):
        part = drawn[start : start + _CHUNK]
        words = rng.words(part.size)
        # One word per record serves both thresholds, so the time does not depend on `wanted`.
        np.less(words, if_wanted, out=part)
        part &= wanted[start : start + _CHUNK]
        part |= words < otherwise
    return drawn


def _float_words_below(rate: Fraction) -> float:
    """Largest whole number of words, at most rate * 2**64, that a float holds."""
    words = math.floor(rate * _WORD)
    spare = max(0, words.bit_length() - _DIGITS)
    return float(words >> spare << spare)


def _float_words_above(rate: Fraction) -> float:
    """Smallest whole number of words, at least rate * 2**64, that a float holds."""
    words = math.ceil(rate * _WORD)
    spare = max(0, words.bit_length() - _DIGITS)
    return float(-(-words >> spare) << spare)
