"""Gaussian noise on a grid, drawn exactly, from a cryptographic stream.

What is released is a whole number of grid steps: a sum, rounded to the grid, plus
floor(2**40 Z) for a standard normal Z. For whole s, s + floor(2**40 Z) = floor(s + 2**40 Z), so
the release only processes what the continuous Gaussian mechanism would release of s, and every
bound for that one holds for it.

The law of floor(2**40 Z) is drawn without rounding: a cell of the density is proposed, a place in
it, and both are accepted with a chance that is compared with random bits as far as it takes
(`dpal.mechanisms.coins`). All that is missing is the tail beyond 26 standard deviations
(`total_variation`).

Source: rejection from a histogram of the density, as in von Neumann (1951) and Karney (2016),
"Sampling exactly from the normal distribution".
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpal.mechanisms.coins import below
from dpal.randomness import BitSource, Words

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]

STEPS: Final = 1 << 40  # grid steps to a standard deviation

# A word proposes: 16 bits choose a slot, and with it a cell; 34 bits a step within the cell; the
# last bit a side.
_SLOT_SHIFT = np.uint64(48)
_PLACE_SHIFT, _PLACE_BITS = np.uint64(13), 34
_PLACE_MASK = np.uint64((1 << _PLACE_BITS) - 1)
_SLOTS = 1 << 16
_CELLS_TO_UNIT = STEPS >> _PLACE_BITS  # 64 cells to a standard deviation
_REACH = 26  # standard deviations
_CELLS = _REACH * _CELLS_TO_UNIT
_AT_ONCE = 1 << 15  # values that are drawn together: tables and words fit a core's cache

# Rounding a sum to the grid may move two sums apart by one step in each of d coordinates, by
# sqrt(d) in all. Noise that is wider by this share pays for that while sqrt(d) times the noise
# multiplier is below 2**20.
_WIDENING = 1 + 2.0**-20


def _slots_of_cells() -> tuple[NDArray[np.int64], int]:
    """Slots of each cell, and how many slots a density of 1 has."""
    highest = np.exp(-0.5 * (np.arange(_CELLS) / _CELLS_TO_UNIT) ** 2)

    def slots(density: int) -> NDArray[np.int64]:
        # A part more: rounding of the table may not put a cell below the density.
        return np.ceil(highest * density * (1 + 1e-12)).astype(np.int64)

    density = int(_SLOTS / (_CELLS_TO_UNIT * math.sqrt(math.pi / 2)))
    while slots(density).sum() > _SLOTS:
        density -= 1
    return slots(density), density


_SLOTS_OF, _DENSITY = _slots_of_cells()
_NO_CELL = _CELLS  # where slots are left over; never accepted
_CELL_OF = np.concatenate(
    [np.repeat(np.arange(_CELLS), _SLOTS_OF), np.full(_SLOTS - _SLOTS_OF.sum(), _NO_CELL)]
).astype(np.uint16)


def _certain() -> Words:
    """(cells + 1,) words below which every place of a cell is accepted, the least likely too."""
    ends = np.arange(1, _CELLS + 1) / _CELLS_TO_UNIT
    chances = np.exp(-0.5 * ends**2) * _DENSITY / _SLOTS_OF - 1e-9
    return np.append(np.maximum(chances, 0.0) * 2.0**64, 0.0).astype(np.uint64)


_CERTAIN = _certain()


def grid_noise(count: int, *, rng: BitSource) -> Steps:
    """Draws (count,) independent whole numbers floor(2**40 Z), Z standard normal."""
    noise = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        missing = count - filled
        # A few more than are missing: one proposal in 28 is not accepted.
        drawn = _accepted(min(missing + missing // 16 + 32, _AT_ONCE), rng)[:missing]
        noise[filled : filled + drawn.size] = drawn
        filled += drawn.size
    return noise


def grid_length(scale: float) -> float:
    """The length of a step of the grid on which noise of a standard deviation is drawn."""
    return scale * _WIDENING / STEPS


def resolution(scale: float) -> float:
    """What sums with noise of a standard deviation are rounded to when they leave."""
    return scale * 2.0**-20


def on_grid(total: Floats, scale: float, *, rng: BitSource) -> tuple[Floats, float]:
    """Adds noise of standard deviation `scale` to sums, in whole steps of a public grid.

    Args:
      total: (n,) sums; private.
      scale: standard deviation of the noise, above 0; a millionth more is drawn, which pays for
        the rounding of sums to the grid.
      rng: source of the noise.

    Returns:
      (n,) noisy sums as whole numbers of steps, and the length of a step.
    """
    step = grid_length(scale)
    # Both terms are whole numbers that float64 holds exactly, so that even a sum that float64
    # has to round is a function of their exact sum, and of nothing else.
    return np.rint(total / step) + grid_noise(total.size, rng=rng), step


def noisy_sum(total: Floats, scale: float, *, rng: BitSource) -> Floats:
    """Adds noise of standard deviation `scale` to (n,) sums, and rounds the result.

    What leaves has a public resolution of scale / 2**20, which adds a relative variance of 1e-13.
    """
    steps, step = on_grid(total, scale, rng=rng)
    finest = resolution(scale)
    return np.asarray(np.rint(steps * (step / finest)) * finest)


def standard_normal(count: int, *, rng: BitSource) -> Floats:
    """Draws (count,) standard normal values in float64. For simulations: releases use a grid."""
    return np.asarray((grid_noise(count, rng=rng) + 0.5) / STEPS)


def precise_normal(*, rng: BitSource) -> Fraction:
    """Draws one standard normal value to 168 binary places."""
    from mpmath import mp

    cell = int(grid_noise(1, rng=rng)[0])
    nearest = min(cell**2, (cell + 1) ** 2)  # where the density of the step is highest
    finer = 1 << 128
    while True:
        high, low = (int(word) for word in rng.words(2))
        value = Fraction(cell * finer + (high << 64 | low), STEPS * finer)
        squares = value**2 - Fraction(nearest, STEPS**2)

        def chance(_index: int, squares: Fraction = squares) -> Any:
            return mp.exp(-mp.mpf(squares.numerator) / (2 * squares.denominator))

        if below(np.array([math.exp(-float(squares) / 2)]), chance, rng=rng)[0]:
            return value


def total_variation(values: float) -> float:
    """How far so many noise values are from their law at most: the chance of a missing tail.

    Args:
      values: coordinates times steps of everything that is released.
    """
    return values * math.erfc(_REACH / math.sqrt(2))


def _accepted(count: int, rng: BitSource) -> Steps:
    """Those of so many proposals that are accepted."""
    words = rng.words(2 * count)
    places, uniform = words[:count], words[count:]
    cells = _CELL_OF[places >> _SLOT_SHIFT]
    steps = ((places >> _PLACE_SHIFT) & _PLACE_MASK).view(np.int64)
    steps |= cells.astype(np.int64) << _PLACE_BITS
    accepted = uniform < _CERTAIN[cells]
    unsure = np.flatnonzero(~accepted & (cells != _NO_CELL))
    accepted[unsure] = _decide(steps[unsure], cells[unsure], uniform[unsure], rng)
    # On the other side, floor(-x) of an x between two steps is -1 - floor(x): all bits turned.
    steps ^= -(places & np.uint64(1)).view(np.int64)
    return np.asarray(steps[accepted])


def _decide(
    steps: Steps, cells: NDArray[np.uint16], uniform: Words, rng: BitSource
) -> NDArray[np.bool_]:
    """Accepts a step with its share of what its cell was proposed for."""
    middles = (steps + 0.5) / STEPS
    # The density varies by less than 1e-20 of itself around the middle of a step's mean.
    chances = np.exp(-0.5 * middles**2) * _DENSITY / _SLOTS_OF[cells]

    def exact(index: int) -> Any:
        return step_mass(int(steps[index])) * _DENSITY / int(_SLOTS_OF[cells[index]])

    return below(chances, exact, rng=rng, words=uniform)


def step_mass(step: int) -> Any:
    """Mean of exp(-x**2 / 2) over one step of the grid, by mpmath at its current precision."""
    from mpmath import mp

    # Both ends agree in the first 40 bits or more.
    with mp.extraprec(128):
        root = mp.sqrt(2) * STEPS
        left, right = mp.erfc(mp.mpf(step) / root), mp.erfc(mp.mpf(step + 1) / root)
        mean = mp.sqrt(mp.pi / 2) * STEPS * (left - right)
    return +mean
