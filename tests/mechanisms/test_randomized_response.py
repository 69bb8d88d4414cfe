"""Answers keep the promised ratios exactly, and come at the promised rates.

Ratios are compared as fractions with bounds on e^epsilon from 60-digit arithmetic, so no
tolerance stands between the promise and the draw.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dpal.errors import ParameterError
from dpal.mechanisms.randomized_response import anchored_rates, randomized_responses
from tests.conftest import RepeatableBits

EDGE = 2.0**-32
epsilons = st.floats(2.0**-20, 64.0)
blanks = st.floats(EDGE, 1 - EDGE)


class OneWord(RepeatableBits):
    """Draws the same word for every record."""

    def __init__(self, word: int) -> None:
        self._word = word

    def words(self, count: int):
        return np.full(count, self._word, dtype=np.uint64)


def bounds_on_exp(epsilon: float) -> tuple[Fraction, Fraction]:
    """Fractions below and above e^epsilon, one part in 10^50 apart."""
    with localcontext(prec=60):
        value = Fraction(Decimal(epsilon).exp())
    return value * (1 - Fraction(1, 10**50)), value * (1 + Fraction(1, 10**50))


def drawn_words(above: float, below: float) -> tuple[int, int]:
    """How many of the 2**64 words say yes; one more word each must say no."""
    if_wanted, otherwise = int(Fraction(above) * 2**64), math.ceil(Fraction(below) * 2**64)
    for wanted, words in ((True, if_wanted), (False, otherwise)):
        for word in {words - 1, words} - {-1, 2**64}:
            said = randomized_responses(
                np.array([wanted]), above=above, below=below, rng=OneWord(word)
            )
            assert said[0] == (word < words)
    return if_wanted, otherwise


@settings(deadline=None)
@given(epsilons, blanks)
@example(2.0**-20, 1 - EDGE)
@example(2.0**-20, EDGE)
@example(64.0, EDGE)
@example(64.0, 1 - EDGE)
@example(math.log(2), 0.25)
def test_the_ratios_as_drawn_stay_within_the_promise(epsilon, blank):
    least, _ = bounds_on_exp(epsilon)
    above, below = anchored_rates(epsilon, blank)
    yes = Fraction(blank)
    for words in drawn_words(above, below):
        rate = Fraction(words, 2**64)
        for ratio in (rate / yes, (1 - rate) / (1 - yes)):
            assert 1 / least <= ratio <= least


@settings(deadline=None)
@given(epsilons, blanks)
def test_the_rates_are_drawn_as_returned(epsilon, blank):
    above, below = anchored_rates(epsilon, blank)
    assert (Fraction(above) * 2**64).denominator == (Fraction(below) * 2**64).denominator == 1
    assert 0 < below < 1 and 0 < above < 1


@settings(deadline=None)
@given(epsilons, blanks)
def test_the_rates_give_away_nothing_but_rounding(epsilon, blank):
    # The lower neighbour of a float exponential is off by 2**-51 of itself, which moves a
    # rate by as much at most; what is left of 2**-50 covers the 53 bits of the result.
    _, most = bounds_on_exp(epsilon)
    yes = Fraction(blank)
    above, below = map(Fraction, anchored_rates(epsilon, blank))
    assert min(most * yes, 1 - (1 - yes) / most) - above < Fraction(1, 2**50)
    assert below - max(yes / most, 1 - most * (1 - yes)) < Fraction(1, 2**50)


@settings(deadline=None)
@given(st.floats(2.0**-30, 0.9), st.floats(2.0**-30, 0.9))
def test_any_rates_are_drawn_on_the_private_side(one, other):
    above, below = max(one, other), min(one, other)
    assume(above - below > 2.0**-62)
    if_wanted, otherwise = drawn_words(above, below)
    assert 0 <= Fraction(above) - Fraction(if_wanted, 2**64) < Fraction(1, 2**64)
    assert 0 <= Fraction(otherwise, 2**64) - Fraction(below) < Fraction(1, 2**64)


@pytest.mark.parametrize(("above", "below"), [(0.37, 0.21), (0.9, 1e-3), (0.5, 0.5)])
def test_answers_have_their_rates(above, below, bits):
    n = 1_000_000
    wanted = np.arange(n) % 3 == 0
    said = randomized_responses(wanted, above=above, below=below, rng=bits)
    for group, rate in ((wanted, above), (~wanted, below)):
        size = int(group.sum())
        # Five standard deviations of a binomial: a false alarm of 6e-7.
        assert abs(said[group].sum() - size * rate) < 5 * math.sqrt(size * rate * (1 - rate))


def test_answers_do_not_depend_on_each_other(bits):
    n = 1_000_000
    said = randomized_responses(np.ones(n, dtype=np.bool_), above=0.4, below=0.1, rng=bits) - 0.4
    # The correlation of neighbours, and of records in the same place of two chunks, has
    # standard deviation 1 / sqrt(n).
    for distance in (1, 2, 1 << 15):
        correlation = np.mean(said[:-distance] * said[distance:]) / (0.4 * 0.6)
        assert abs(correlation) < 5 / math.sqrt(n - distance)


def test_each_record_takes_one_word_whatever_it_wants():
    """A stream that moved on with the content would tie the answers of records together."""
    n = 100_000
    wanted = RepeatableBits(3).words(n) < np.uint64(2**62)
    one, other = RepeatableBits(4), RepeatableBits(4)
    said = randomized_responses(wanted, above=0.6, below=0.1, rng=one)
    flipped = randomized_responses(~wanted, above=0.6, below=0.1, rng=other)
    words = RepeatableBits(4).words(n)
    assert np.array_equal(said | flipped, words < np.uint64(int(0.6 * 2**64)))
    assert np.array_equal(one.words(4), other.words(4))


def test_nobody_is_answered_for_nobody(bits):
    assert (
        randomized_responses(np.empty(0, dtype=np.bool_), above=0.6, below=0.1, rng=bits).size == 0
    )


@pytest.mark.parametrize(
    ("above", "below"),
    [(1.0, 0.1), (0.6, 0.0), (math.nan, 0.1), (0.6, math.nan), (0.1, 0.6), (5e-5, 5e-5)],
)
def test_rates_without_a_bound_are_refused(above, below, bits):
    with pytest.raises(ParameterError, match="must be"):
        randomized_responses(np.array([True]), above=above, below=below, rng=bits)


@pytest.mark.parametrize(
    ("epsilon", "blank"), [(0.0, 0.5), (65.0, 0.5), (math.nan, 0.5), (1.0, 0.0), (1.0, math.nan)]
)
def test_an_epsilon_or_blank_rate_out_of_range_is_refused(epsilon, blank):
    with pytest.raises(ParameterError, match="must be between"):
        anchored_rates(epsilon, blank)
