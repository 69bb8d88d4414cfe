"""Gaussian noise is drawn exactly: no released number is impossible without the record."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp
from scipy import stats

from dpal.mechanisms import coins, gaussian
from dpal.mechanisms.gaussian import (
    STEPS,
    grid_noise,
    noisy_sum,
    on_grid,
    precise_normal,
    step_mass,
    total_variation,
)
from dpal.randomness import Words, secure
from tests.conftest import RepeatableBits

FALSE_ALARM = 1e-6
PAIRS = 400


class LeadingZeros:
    """A secure stream; in requests for many, one half of the words begins with zeros."""

    def __init__(self, zeros: int, *, half: int) -> None:
        self.zeros, self.half, self.stream = zeros, half, secure()

    def words(self, count: int) -> Words:
        drawn = self.stream.words(count)
        if count == 1:
            return drawn  # more bits of a number that begins with zeros
        part = slice(0, count // 2) if self.half == 0 else slice(count // 2, count)
        if self.zeros == 64:
            drawn[part] = 0
        else:
            drawn[part] >>= np.uint64(self.zeros)
        return drawn


class Replayed:
    """Words that an attacker made up, and zeros, which accept everything, after them."""

    def __init__(self, words: Words) -> None:
        self.places, self.uniform = np.split(words, 2)

    def words(self, count: int) -> Words:
        if count < 2 * self.places.size:
            return np.zeros(count, dtype=np.uint64)
        spare = np.zeros(count // 2 - self.places.size, dtype=np.uint64)
        return np.concatenate([self.places, spare, self.uniform, spare])


def words_for(noise: np.ndarray) -> Words:
    """Words that make the sampler draw this noise: slots of its cells, its places, its sides."""
    negative = noise < 0
    place = np.where(negative, ~noise, noise).astype(np.uint64)
    cells = (place >> np.uint64(gaussian._PLACE_BITS)).astype(np.int64)
    first_slot = np.searchsorted(gaussian._CELL_OF, cells).astype(np.uint64)
    words = first_slot << gaussian._SLOT_SHIFT
    words |= (place & gaussian._PLACE_MASK) << gaussian._PLACE_SHIFT
    words |= negative.astype(np.uint64)
    return np.concatenate([words, np.zeros(noise.size, dtype=np.uint64)])  # U = 0 accepts


def possible(released: np.ndarray, total: np.ndarray, scale: float) -> np.ndarray:
    """Whether each released number can come from another sum: made-up words are run, and tell."""
    resolution, step = scale * 2.0**-20, scale * gaussian._WIDENING / STEPS
    wanted = np.rint(released / step) - np.rint(total / step)
    again = noisy_sum(total, scale, rng=Replayed(words_for(wanted.astype(np.int64))))
    return np.abs(again - released) < 0.5 * resolution


@pytest.mark.parametrize("half", [0, 1])
def test_no_output_is_impossible_without_the_record(half):
    """Whatever words were drawn, however rare: the neighbouring world may release the same."""
    scale, record = 2.0, np.full(PAIRS, 0.7)
    for zeros in range(65):
        source = LeadingZeros(zeros, half=half)
        if half == 0 and zeros > 24:
            # So small noise is drawn by words of which no bit is left to choose.
            assert (np.abs(grid_noise(8, rng=source)) < 2 ** max(0, 51 - zeros) + 1).all()
        released = noisy_sum(record, scale, rng=source)
        assert possible(released, np.zeros(PAIRS), scale).all(), zeros
        without = noisy_sum(np.zeros(PAIRS), scale, rng=source)
        assert possible(without, record, scale).all(), zeros


def test_the_attack_finds_what_box_and_muller_cannot_release():
    """Power: noise from one 53-bit uniform for the radius, rounded to the same grid."""
    source, scale = LeadingZeros(40, half=0), 1.0
    words = source.words(2 * PAIRS)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius = np.sqrt(-2 * np.log(uniform[:PAIRS]))
    pair = radius * np.exp(2j * np.pi * uniform[PAIRS:]) + 0.5  # the record
    grid = scale * 2.0**-20
    x, y = np.rint(pair.real / grid) * grid, np.rint(pair.imag / grid) * grid
    # Without the record, the radius must come from a word, somewhere in the cell of the grid.
    low = np.maximum(np.abs(x) - grid / 2, 0) ** 2 + np.maximum(np.abs(y) - grid / 2, 0) ** 2
    high = (np.abs(x) + grid / 2) ** 2 + (np.abs(y) + grid / 2) ** 2
    word = np.exp(-low / 2) * 2.0**53 - 0.5, np.exp(-high / 2) * 2.0**53 - 0.5
    impossible = np.floor(word[0]) < np.ceil(word[1])
    assert impossible.mean() > 0.6


def test_every_step_has_the_chance_of_the_normal_law(bits):
    """The law that the tables make, against the integral: tails, cells' ends, places within."""
    cells = np.arange(gaussian._CELLS)
    slots, density = gaussian._SLOTS_OF, gaussian._DENSITY
    assert np.array_equal(np.bincount(gaussian._CELL_OF)[: cells.size], slots)
    last = (1 << gaussian._PLACE_BITS) - 1
    drawn = bits.words(cells.size) & gaussian._PLACE_MASK
    for places in (np.zeros_like(drawn), drawn, np.full_like(drawn, last)):
        steps = (cells << gaussian._PLACE_BITS) + places.astype(np.int64)
        middles = (steps + 0.5) / STEPS
        accepted = np.exp(-0.5 * middles**2) * density / slots
        assert (accepted <= 1).all()
        # Words below the certain ones are accepted unseen; they must not be too many.
        assert (gaussian._CERTAIN[:-1] * 2.0**-64 <= accepted).all()
        for cell in (0, 1, 63, 200, 640, gaussian._CELLS - 1):
            exact = float(step_mass(int(steps[cell])))
            assert accepted[cell] * slots[cell] / density == pytest.approx(exact, rel=1e-12)
    assert gaussian._CERTAIN[-1] == 0
    # Left-over slots are proposed and never accepted.
    assert (gaussian._CELL_OF[slots.sum() :] == gaussian._NO_CELL).all()


def test_the_mass_of_a_step_is_the_integral():
    """Against Taylor's series around its middle, whose next term is below 1e-44."""
    for step in (0, 12_345, 3 << 40, 25 << 40):
        with mp.workdps(80):
            middle, width = mp.mpf(2 * step + 1) / (2 * STEPS), mp.mpf(1) / STEPS
            curved = 1 + width**2 * (middle**2 - 1) / 24
            series = mp.exp(-(middle**2) / 2) * curved
            assert abs(step_mass(step) / series - 1) < mp.mpf(10) ** -44


def test_draws_that_are_compared_bit_by_bit_are_the_same(monkeypatch):
    """Many comparisons sent to mpmath decide as float64 does, but for what it cannot tell."""
    quick = grid_noise(300, rng=RepeatableBits(11))
    monkeypatch.setattr(coins, "ERROR", 0.05)
    monkeypatch.setattr(gaussian, "_CERTAIN", np.zeros_like(gaussian._CERTAIN))
    calls = []
    exact = gaussian.step_mass

    def counted(step):
        calls.append(step)
        return exact(step)

    monkeypatch.setattr(gaussian, "step_mass", counted)
    assert np.array_equal(grid_noise(300, rng=RepeatableBits(11)), quick)
    assert len(calls) > 10


def test_noise_is_counted_in_whole_steps_and_has_both_signs(bits):
    noise = grid_noise(200_000, rng=bits)
    assert noise.dtype == np.int64
    # The low bits of a step are even coins: 200,000 of them, at 1e-6 for all twenty.
    for bit in range(20):
        ones = int(((noise >> bit) & 1).sum())
        assert abs(ones - 100_000) < 5.5 * math.sqrt(50_000)
    assert abs(int((noise < 0).sum()) - 100_000) < 5.5 * math.sqrt(50_000)
    assert grid_noise(0, rng=bits).size == 0


def test_a_sum_and_its_neighbour_differ_by_whole_steps():
    """What is released is a function of (sum in steps + noise), and of nothing else."""
    total = np.array([1 / 3, -7.25, 1e-9, 1e7])
    noise = grid_noise(4, rng=RepeatableBits(3))
    noisy, step = on_grid(total, 0.25, rng=RepeatableBits(3))
    assert np.array_equal(noisy, np.rint(total / step) + noise)
    moved, _ = on_grid(total + 5 * step, 0.25, rng=RepeatableBits(3))
    assert np.array_equal(moved[:3] - noisy[:3], [5, 5, 5])


@pytest.mark.parametrize(("coordinates", "multiplier"), [(10**8, 100.0), (26_010, 5_000.0)])
def test_wider_noise_pays_for_rounding_the_sum(coordinates, multiplier):
    """Two sums that differ by Delta may be rounded sqrt(d) steps further apart."""
    sensitivity = 1.0
    _, step = on_grid(np.zeros(1), multiplier * sensitivity, rng=secure())
    apart = sensitivity / step + math.sqrt(coordinates)
    assert STEPS / apart >= multiplier


def test_the_missing_tail_is_far_below_a_hundredth_of_delta():
    values, epsilon, delta = 1e8 * 1e4, 16.0, 1e-10
    both_worlds = (1 + math.exp(epsilon)) * total_variation(values)
    assert 0 < both_worlds < 1e-100 < 0.01 * delta


def test_precise_values_are_normal_and_finer_than_the_grid(bits):
    drawn = [precise_normal(rng=bits) for _ in range(400)]
    assert stats.kstest([float(value) for value in drawn], "norm").pvalue > FALSE_ALARM
    assert stats.kstest([2.5 * float(value) for value in drawn], "norm").pvalue < FALSE_ALARM
    assert sum((value * STEPS).denominator > 1 << 100 for value in drawn) > 390
