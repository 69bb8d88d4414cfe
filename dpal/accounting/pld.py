"""Tight composition by privacy loss distributions on a fixed grid.

Each step's hockey-stick curve becomes a pessimistic distribution of privacy losses
("connect the dots"), its Fourier transform is cached, and composing is multiplying
transforms. Everything that the grid and floating point can hide is added to delta:

- losses above a step's reach count as infinite;
- losses that composition carries beyond the grid wrap around to its low end, where they
  would be missed: their chance is bounded by the Chernoff bound of the very distributions
  that are composed;
- losses below the grid wrap to its high end, which only overstates delta;
- rounding: see `_rounding`.

Source: Doroshenko, Ghazi, Kamath, Kumar & Manurangsi (2022), "Connect the dots", for the
discretisation; Koskela, Jälkö & Honkela (2020) for composition by Fourier transforms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.events import Event
from dpal.accounting.profiles import Grid, PrivacyProfile, Values, lossless_profile
from dpal.accounting.single_step_curves import Direction, MechanismStep
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

Spectrum = NDArray[np.complex128]

SEARCH: Final = 1e-3  # relative error of the loss variance allowed while a planner searches
CERTIFY: Final = 5e-5  # the same for a certificate: epsilon 8 is then exact to about 2e-4

_UNIT = 2.0**-53
_LEAST_LOG = -746.0  # e to the power of less is 0
_TILTS: Final = np.array([0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96])
_MOST_LOSSES = 1 << 24  # of one step, before memory runs out
_TAIL = 1e-4  # share of delta that may lie beyond the grid


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Pessimistic privacy losses of one step.

    Attributes:
      first: grid index of the first loss.
      masses: (n,) chances of the losses from there on.
      infinite: chance of an unbounded loss.
    """

    first: int
    masses: Values
    infinite: float

    def log_moments(self, tilts: Values, interval: float) -> Values:
        """Ln E[e^(tilt * loss)] over the finite losses, shape (n_tilts,)."""
        losses = interval * (self.first + np.arange(self.masses.size))
        exponents = tilts[:, None] * losses[None, :]
        top = exponents.max(axis=1)
        with np.errstate(divide="ignore"):  # all of it may underflow: -inf
            return np.asarray(top + np.log(np.exp(exponents - top[:, None]) @ self.masses))


def compose(
    events: Iterable[Event], *, grid: Grid, adjacency: Adjacency, direction: Direction
) -> PrivacyProfile:
    """The profile of one record's history, in one direction.

    Args:
      events: what happened to the record, in any order.
      grid: from `fit_grid`, possibly of a similar history.
      adjacency: which change of the data is meant.
      direction: which side has the record.

    Returns:
      An upper bound on the hockey-stick divergence at every epsilon.
    """
    counted = _counted(events)
    if not counted:
        return lossless_profile(grid)
    total = np.zeros(grid.size // 2 + 1, dtype=np.complex128)
    finite = 1.0
    log_moments = np.zeros(_TILTS.size)
    for step, count in counted:
        part = _transform(step, grid, adjacency, direction)
        total += count * part.log_spectrum
        log_moments += count * part.log_moments
        finite *= (1 - part.infinite) ** count
    circular = np.fft.irfft(_exponential(total), grid.size)
    masses = np.maximum(np.roll(circular, -(grid.low % grid.size)), 0.0)
    highest = grid.interval * (grid.low + grid.size - 1)
    wrapped = math.exp(min(0.0, float(np.min(log_moments - _TILTS * highest))))
    slack = wrapped + (1 - finite) + _rounding(masses, [count for _, count in counted])
    return _profile(masses, grid).raised(slack)


def discretise(
    step: MechanismStep, *, interval: float, adjacency: Adjacency, direction: Direction
) -> LossDistribution:
    """Turns one step's curve into a distribution whose curve lies nowhere below it.

    Between neighbouring grid points the new curve is the chord of the old one (in
    e^epsilon), so it lies above.

    Raises:
      ParameterError: the step has too many losses of this distance.
    """
    least, most = step.reach(adjacency, direction)
    first = math.floor(least / interval) - 1
    last = max(first + 1, math.ceil(most / interval) + 1)
    if last - first > _MOST_LOSSES:
        raise ParameterError(
            f"a step with {last - first:,} losses is too large to account for; use more noise, or "
            "a larger sample rate"
        )
    losses = interval * np.arange(first, last + 1, dtype=np.float64)
    deltas = step.delta(losses, adjacency, direction)
    rises = np.diff(deltas)
    up, down = rises / math.expm1(interval), rises / -math.expm1(-interval)
    masses = np.empty(losses.size)
    masses[0] = up[0] - (deltas[0] - 1)
    masses[1:-1] = up[1:] - down[:-1]
    masses[-1] = -down[-1]
    # Rounding may leave -1e-13 where nothing is; adding mass is pessimistic.
    infinite = float(deltas[-1]) + step.failure
    return LossDistribution(first, np.maximum(masses, 0.0), min(1.0, infinite))


def fit_grid(
    histories: Sequence[Sequence[Event]],
    *,
    delta: float,
    adjacency: Adjacency,
    accuracy: float,
) -> Grid:
    """A grid on which all these histories can be composed.

    Args:
      histories: of several records.
      delta: the smallest one of interest.
      adjacency: which change of the data is meant.
      accuracy: relative error allowed in the variance of the loss.

    Raises:
      ParameterError: the losses are too large and too fine for any grid; `dpal` plans
        with far more noise than that.
    """
    counted = [history for history in map(_counted, histories) if history]
    if not counted:
        return Grid(0.01, -8, 16)
    # A loss l between two points of distance h is split between them, which adds the
    # variance (l - x)(x + h - l), about h^2 / 6 on average.
    # The history with most loss decides; the others are only overstated a little. Steps
    # whose largest loss must not move have a say only where there is nothing else.
    smooth = [[(s, n) for s, n in history if s.chooses_grid] for history in counted]
    variance, steps = max(
        (sum(n * s.spread**2 for s, n in history), sum(n for _, n in history))
        for history in (filter(None, smooth) if any(smooth) else counted)
    )
    rms = math.sqrt(variance / steps)
    interval = math.sqrt(6 * accuracy) * rms
    low, high = -8 * interval, 8 * interval
    for history in counted:
        for direction in Direction:
            bounds = _bounds(history, interval, delta, adjacency, direction)
            low, high = min(low, bounds[0]), max(high, bounds[1])
    size = 1 << math.ceil(math.log2((high - low) / interval))
    interval = (high - low) / size  # use the whole power of two
    return Grid(interval, math.floor(low / interval), 2 * size if size < 64 else size)


def _bounds(
    counted: Sequence[tuple[MechanismStep, int]],
    interval: float,
    delta: float,
    adjacency: Adjacency,
    direction: Direction,
) -> tuple[float, float]:
    """Losses that composition passes with a chance below a small share of delta only."""
    up, down = np.zeros(_TILTS.size), np.zeros(_TILTS.size)
    for step, count in counted:
        # A tenfold coarser look is enough to see how far the sum reaches.
        coarse = discretise(step, interval=10 * interval, adjacency=adjacency, direction=direction)
        up += count * coarse.log_moments(_TILTS, 10 * interval)
        down += count * coarse.log_moments(-_TILTS, 10 * interval)
    enough = math.log(_TAIL * delta)
    return -float(np.min((down - enough) / _TILTS)), float(np.min((up - enough) / _TILTS))


@dataclass(frozen=True, eq=False)
class _Transform:
    log_spectrum: Spectrum
    log_moments: Values
    infinite: float


@lru_cache(maxsize=192)
def _transform(
    step: MechanismStep, grid: Grid, adjacency: Adjacency, direction: Direction
) -> _Transform:
    """The Fourier transform of one step's losses, ready to be raised to a power."""
    losses = discretise(step, interval=grid.interval, adjacency=adjacency, direction=direction)
    circular = np.zeros(grid.size)
    positions = (losses.first + np.arange(losses.masses.size)) % grid.size
    np.add.at(circular, positions, losses.masses)
    spectrum = np.fft.rfft(circular)
    tiny = np.abs(spectrum) < 1e-300
    spectrum[tiny] = 1e-300  # its logarithm must stay finite; any power of it is zero
    return _Transform(
        np.log(spectrum),
        losses.log_moments(_TILTS, grid.interval),
        losses.infinite,
    )


def _exponential(logs: Spectrum) -> Spectrum:
    """e^logs, and 0 without computing it where that is too small for a float: mostly it is."""
    seen = np.flatnonzero(logs.real > _LEAST_LOG)
    if 2 * seen.size > logs.size:
        return np.exp(logs)
    powers = np.zeros(logs.size, dtype=np.complex128)
    powers[seen] = np.exp(logs[seen])
    return powers


@lru_cache(maxsize=4)  # a grid has up to two million losses
def _exponents(grid: Grid) -> tuple[Values, Values]:
    """e^loss and e^-loss of a grid's losses."""
    losses = grid.losses
    if losses[0] < -600 or losses[-1] > 600:
        raise ParameterError(
            "privacy losses beyond 600 cannot be accounted for; use more noise, or promise a "
            "smaller epsilon"
        )
    rising, falling = np.exp(losses), np.exp(-losses)
    for shared in (rising, falling):
        shared.flags.writeable = False
    return rising, falling


def _counted(events: Iterable[Event]) -> list[tuple[MechanismStep, int]]:
    """What events are made of: every step, and how often it happens in all of them.

    A step of many events is raised to one power: what rounding may hide grows with the parts.
    """
    counts: dict[MechanismStep, int] = {}
    for step, count in (event.composition() for event in events):
        if count:
            counts[step] = counts.get(step, 0) + count
    return list(counts.items())


def _rounding(masses: Values, counts: Sequence[int]) -> float:
    """What floating point may have hidden from delta.

    Transforms: an output is a sum over all inputs, each of which passes log2(n) butterflies
    that err by 5 u at most (Higham 2002, Sec. 24.1), so a spectrum of chances is off by
    e = 5 u log2(n) everywhere. Powers: where |part| >= 0.9, its power makes of that
    1.12 count |product| e at most; elsewhere count 0.9^(count - 1) e, below 4 e. Phases are
    multiplied by counts and added up: pi u (4 + parts) per step. A sum over n masses is off
    by sqrt(n) times their l2 error; by Parseval, a spectrum's l2 norm is sqrt(n) times
    that of the masses.
    Curves: values in [0, 1] wrong by 8 u at most, and delta is an average of them per
    step.
    """
    n, steps, parts = masses.size, sum(counts), len(counts)
    spectrum = 5 * _UNIT * math.log2(n)
    per_step = 1.12 * spectrum + math.pi * _UNIT * (4 + parts)
    # Not `np.linalg.norm`: threads of BLAS wait for each other, long where others compute.
    norm = math.sqrt(float(np.sum(np.square(masses))))
    transforms = (steps * per_step + spectrum) * norm + 4 * parts * spectrum
    return math.sqrt(n) * transforms + 8 * _UNIT * steps


def _profile(masses: Values, grid: Grid) -> PrivacyProfile:
    """delta(x) = sum over losses above x of mass * (1 - e^(x - loss)), at every grid point."""
    rising, falling = _exponents(grid)
    above = np.cumsum(masses[::-1])[::-1]
    weighted = np.cumsum((masses * falling)[::-1])[::-1]
    deltas = above - rising * weighted
    return PrivacyProfile(grid, np.clip(deltas, 0.0, 1.0))
