"""Coins whose chance is a real number: exact down to chances that float64 cannot tell from 0."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp
from scipy import stats
from scipy.special import ndtr

from dpal.mechanisms.coins import ERROR, below, normal_below
from dpal.randomness import Words
from tests.conftest import RepeatableBits

FALSE_ALARM = 1e-6


class GivenBits:
    """One uniform number, by its first bits; zeros after them."""

    def __init__(self, number: Fraction) -> None:
        self.rest = number

    def words(self, count: int) -> Words:
        drawn = []
        for _ in range(count):
            self.rest *= 2**64
            word = self.rest.numerator // self.rest.denominator
            self.rest -= word
            drawn.append(word)
        return np.array(drawn, dtype=np.uint64)


def exactly(chance: Fraction):
    return lambda _index: mp.mpf(chance.numerator) / chance.denominator


@pytest.mark.parametrize("power", [1, 30, 53, 54, 64, 65, 100, 200, 1000])
@pytest.mark.parametrize("side", [-1, 1])
def test_a_uniform_number_is_compared_to_its_last_bit(power, side):
    """U lies beside the chance by one part in 2**80 of it: no float64 could tell them apart."""
    for chance in (Fraction(2, 3) / 2**power, 1 - Fraction(2, 3) / 2**power):
        nearest = min(chance, 1 - chance)
        number = chance + side * nearest / 2**80
        said = below(np.array([float(chance)]), exactly(chance), rng=GivenBits(number))
        assert bool(said[0]) is (side < 0)


def test_what_is_rare_is_not_impossible():
    margin = np.array([-20.0])  # a chance of 2.8e-89: no 53-bit uniform number is below it
    with mp.workdps(60):
        chance = Fraction(int(mp.floor(mp.ncdf(-20) * 2**400)), 2**400)
    assert normal_below(margin, rng=GivenBits(chance / 2))[0]
    assert not normal_below(margin, rng=GivenBits(2 * chance))[0]
    assert not normal_below(-margin, rng=GivenBits(1 - chance / 2))[0]
    assert normal_below(-margin, rng=GivenBits(1 - 2 * chance))[0]


def test_chances_are_those_of_the_normal_law(bits):
    margins = np.repeat([-2.5, -0.3, 0.0, 1.2], 100_000)
    seen = normal_below(margins, rng=bits).reshape(4, -1).sum(axis=1)
    for scale, right in ((1.0, True), (1.03, False), (0.97, False)):
        chance = ndtr(scale * np.array([-2.5, -0.3, 0.0, 1.2]))
        deviation = ((seen - 100_000 * chance) ** 2 / (100_000 * chance * (1 - chance))).sum()
        assert bool(stats.chi2.sf(deviation, 4) > FALSE_ALARM) is right


def test_words_that_were_drawn_already_are_used():
    words = np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)
    chances = np.array([0.25, 0.75, 0.5])
    said = below(chances, exactly(Fraction(1, 2)), rng=RepeatableBits(1), words=words)
    assert said.tolist() == [True, True, False]
    assert ERROR < 1e-9
