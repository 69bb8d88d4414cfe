"""Privacy profiles: the delta that a whole history needs at every epsilon.

A profile is sampled on an equally spaced grid of epsilons. Between two grid points it is
taken linearly in e^epsilon: true profiles are convex there, so the chord lies above them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal import check
from dpal.errors import ParameterError

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Equally spaced privacy losses.

    Attributes:
      interval: distance between two of them.
      low: index of the first; its loss is low * interval.
      size: how many; a power of two.
    """

    interval: float
    low: int
    size: int

    def __post_init__(self) -> None:
        check.positive(interval=self.interval)
        if self.size & (self.size - 1) or not 2 <= self.size <= 1 << 21:
            raise ParameterError(
                f"a grid of {self.size:,} losses is too large to account on; use more noise, "
                "fewer steps, or a larger epsilon or delta"
            )

    @property
    def losses(self) -> Values:
        """All losses, ascending, shape (size,)."""
        return _losses(self)


@dataclass(frozen=True, eq=False)
class PrivacyProfile:
    """An upper bound on a hockey-stick curve, valid at every epsilon.

    Attributes:
      grid: the epsilons at which it is known.
      deltas: (grid.size,) its values there, falling.
    """

    grid: Grid
    deltas: Values

    def delta(self, epsilon: float) -> float:
        """The delta at one epsilon."""
        return float(self.at(np.array([epsilon]))[0])

    def epsilon(self, delta: float) -> float:
        """The least epsilon at which the profile is within a delta; infinity if at none."""
        check.inside(0, 1, delta=delta)
        if self.delta(0.0) <= delta:
            return 0.0
        within = np.flatnonzero(self.deltas <= delta)
        if not within.size:
            return math.inf
        index = int(within[0])
        if index == 0:
            return self.grid.low * self.grid.interval
        above, below = self.deltas[index - 1], self.deltas[index]
        share = (above - delta) / (above - below)
        start = (self.grid.low + index - 1) * self.grid.interval
        return start + math.log1p(share * math.expm1(self.grid.interval))

    def at(self, epsilons: Values) -> Values:
        """Deltas at any epsilons, shape (n,)."""
        grid, last = self.grid, self.grid.size - 1
        cell = np.floor(epsilons / grid.interval).astype(np.int64) - grid.low
        before, after = cell < 0, cell >= last
        np.clip(cell, 0, last - 1, out=cell)
        # In place, as planners ask for thousands of curves, and new arrays take longer than sums.
        share = epsilons - (cell + grid.low) * grid.interval
        np.expm1(share, out=share)
        share /= math.expm1(grid.interval)
        start = self.deltas[cell]
        cell += 1
        found = self.deltas[cell]
        found -= start
        found *= share
        found += start
        # Below the grid the chord runs from delta 1 at e^epsilon = 0; above it nothing is
        # known but that a profile falls.
        below = np.minimum(epsilons[before] - grid.low * grid.interval, 0)
        found[before] = 1 - (1 - self.deltas[0]) * np.exp(below)
        found[after] = self.deltas[-1]
        return found

    def scaled(self, share: float, loss: float) -> PrivacyProfile:
        """The part of an outcome of chance `share` and privacy loss `loss` before this."""
        return PrivacyProfile(self.grid, share * self.at(self.grid.losses - loss))

    def plus(self, other: PrivacyProfile) -> PrivacyProfile:
        """The profile of two outcomes that exclude each other."""
        return PrivacyProfile(self.grid, self.deltas + other.deltas)

    def raised(self, delta: float) -> PrivacyProfile:
        """With something added everywhere, at most to 1."""
        return PrivacyProfile(self.grid, np.minimum(1.0, self.deltas + delta))

    def after(self, masses: Values, first: int, infinite: float) -> PrivacyProfile:
        """The profile when an independent release comes before.

        Args:
          masses: (n,) chances of its privacy losses (first + i) * interval.
          first: index of the first loss.
          infinite: chance of an unbounded loss.
        """
        grid, last = self.grid, first + masses.size - 1
        # V(x) = sum_j masses_j * self(x - loss_j): a convolution over a wider grid.
        wide = grid.interval * np.arange(
            grid.low - last, grid.low + grid.size - first, dtype=np.float64
        )
        mixed = scipy.signal.fftconvolve(self.at(wide), masses, mode="valid")
        # Three transforms of values up to 1, each off by 5 u log2(n) in l2 (pld._rounding).
        rounding = 15 * 2.0**-53 * (1 + math.log2(wide.size)) * math.sqrt(2 * wide.size)
        return PrivacyProfile(grid, mixed).raised(infinite + rounding)


@lru_cache(maxsize=4)  # a grid has up to two million of them
def _losses(grid: Grid) -> Values:
    losses = grid.interval * np.arange(grid.low, grid.low + grid.size, dtype=np.float64)
    losses.flags.writeable = False
    return losses


def lossless_profile(grid: Grid) -> PrivacyProfile:
    """The profile of a record that nothing happened to."""
    return PrivacyProfile(grid, np.maximum(0.0, -np.expm1(np.minimum(grid.losses, 0.0))))


def pointwise_maximum(profiles: Sequence[PrivacyProfile]) -> PrivacyProfile:
    """The pointwise largest of profiles on one grid: whichever of them applies."""
    return PrivacyProfile(
        profiles[0].grid, np.max([profile.deltas for profile in profiles], axis=0)
    )
