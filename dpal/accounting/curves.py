"""Hockey-stick curves: the delta that one release needs at every epsilon.

Each mechanism registers its curve for both adjacencies and both directions. A curve is
the divergence of a dominating pair (P, Q), so curves of releases may be composed.

Source: Balle & Wang (2018) for Gaussian noise; Zhu, Dong & Wang (2022), "Optimal
accounting of differential privacy via characteristic function", for subsampling; the
forms for replace-one and for discrete Laplace noise are derived in docs/guarantee.md.
"""

from __future__ import annotations

import math
from enum import StrEnum
from functools import singledispatch

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.accounting.events import (
    SCORE_GRID,
    NoisyScores,
    NoisyThreshold,
    PhaseExposure,
    VotesWithin,
)
from dpal.accounting.votes.events import LEAST_DELTA
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

Losses = NDArray[np.float64]

_REACH = 9.5  # standard deviations of a Gaussian that are followed; beyond lies mass 1e-21


class Direction(StrEnum):
    """Which of the two neighbouring data sets the adversary is in.

    REMOVE: P has the record, Q its blank (or its replacement).
    ADD: the other way round.
    """

    REMOVE = "remove"
    ADD = "add"


@singledispatch
def curve(event: object, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
    """Delta of one step of an event at each epsilon, shape (n,).

    Args:
      event: of a phase of training, one step is meant.
      losses: (n,) epsilons, of any sign.
      adjacency: which change of the data is meant.
      direction: which side has the record.

    Raises:
      ParameterError: the event has no curve of its own.
    """
    raise ParameterError(f"{type(event).__name__} has no privacy curve")


@singledispatch
def reach(event: object, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
    """Least and greatest privacy loss of one step worth following."""
    raise ParameterError(f"{type(event).__name__} has no privacy curve")


@singledispatch
def spread(event: object) -> float:
    """Rough standard deviation of one step's loss; chooses grids, proves nothing."""
    raise ParameterError(f"{type(event).__name__} has no privacy curve")


@curve.register
def _(event: PhaseExposure, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
    rate, sigma = event.sample_rate, event.noise_multiplier
    if adjacency is Adjacency.REPLACE_ONE:
        return _replaced_step(rate, sigma, losses)
    if direction is Direction.REMOVE:
        return _removed_step(rate, sigma, losses)
    return _added_step(rate, sigma, losses)


@reach.register
def _(event: PhaseExposure, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
    rate, sigma = event.sample_rate, event.noise_multiplier
    far = _REACH * sigma
    if adjacency is Adjacency.REPLACE_ONE:
        most = float(_log_ratio(rate, sigma, 1 + far) - _log_ratio(rate, sigma, -1 - far))
        return -most, most
    if direction is Direction.REMOVE:
        return float(_log_ratio(rate, sigma, -far)), float(_log_ratio(rate, sigma, 1 + far))
    return -float(_log_ratio(rate, sigma, far)), -float(_log_ratio(rate, sigma, -far))


@spread.register
def _(event: PhaseExposure) -> float:
    sigma = event.noise_multiplier
    # The first bound overflows for tiny sigma, where the second is the smaller one.
    amplified = event.sample_rate * math.sqrt(math.expm1(min(50.0, sigma**-2)))
    return min(amplified, 1 / sigma)


@curve.register
def _(event: NoisyThreshold, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
    return _removed_step(1.0, event.noise_multiplier, losses)


@reach.register
def _(event: NoisyThreshold, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
    middle = 0.5 / event.noise_multiplier**2
    return middle - _REACH / event.noise_multiplier, middle + _REACH / event.noise_multiplier


@spread.register
def _(event: NoisyThreshold) -> float:
    return 1 / event.noise_multiplier


@curve.register
def _(event: NoisyScores, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
    """Discrete Laplace noise, shifted by the whole grid; mirror-symmetric.

    With weight w = exp(-epsilon / SCORE_GRID) per grid step, outputs below m + 1 have
    losses above x for m = ceil((SCORE_GRID - x * SCORE_GRID / epsilon) / 2) - 1.
    """
    step = event.epsilon / SCORE_GRID
    last = np.ceil((SCORE_GRID - losses / step) / 2) - 1
    last = np.clip(last, 0, SCORE_GRID - 1)
    beyond = 1 / (1 + math.exp(-step))
    with_record = 1 - np.exp(-step * (last + 1)) * beyond
    without = np.exp(-step * (SCORE_GRID - last)) * beyond
    delta = with_record - np.exp(np.minimum(losses, event.epsilon)) * without
    delta = np.where(losses >= event.epsilon, 0.0, delta)
    return np.where(losses <= -event.epsilon, -np.expm1(np.minimum(losses, 0)), delta)


@reach.register
def _(event: NoisyScores, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
    return -event.epsilon, event.epsilon


@spread.register
def _(event: NoisyScores) -> float:
    return event.epsilon


@curve.register
def _(event: VotesWithin, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
    """Of any release that is (epsilon, delta)-private: randomised response, and a failure."""
    most, fails = event.pure, min(1.0, event.failure + LEAST_DELTA)
    inside = np.clip(losses, -most, most)
    told = (math.exp(most) - np.exp(inside)) / (math.exp(most) + 1)
    told = np.where(losses < -most, -np.expm1(np.minimum(losses, 0)), told)
    return np.where(losses >= most, fails, fails + (1 - fails) * told)


@reach.register
def _(event: VotesWithin, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
    return -event.pure, event.pure


@spread.register
def _(event: VotesWithin) -> float:
    return 0.05  # its few losses must not move far


def _removed_step(rate: float, sigma: float, losses: Losses) -> Losses:
    """P = (1-q) N(0) + q N(1), Q = N(0), all of variance sigma^2."""
    # Losses above ln(1 - q) only; e^x - 1 + q without cancellation near its zero.
    floor = -math.inf if rate == 1 else math.log1p(-rate)
    inside = losses > floor
    x = np.where(inside, losses, 1.0)
    log_rest = x if rate == 1 else _log_minus(x, math.log1p(-rate))
    cut = sigma**2 * (log_rest - math.log(rate)) + 0.5
    delta = rate * scipy.special.ndtr((1 - cut) / sigma) - np.exp(
        log_rest + scipy.special.log_ndtr(-cut / sigma)
    )
    return np.where(inside, np.clip(delta, 0, 1), -np.expm1(np.minimum(losses, 0)))


def _added_step(rate: float, sigma: float, losses: Losses) -> Losses:
    """P = N(0), Q = (1-q) N(0) + q N(1), all of variance sigma^2."""
    ceiling = math.inf if rate == 1 else -math.log1p(-rate)
    inside = losses < ceiling
    x = np.where(inside, losses, -1.0)
    log_rest = -x if rate == 1 else _log_minus(-x, math.log1p(-rate))
    cut = sigma**2 * (log_rest - math.log(rate)) + 0.5
    # e^x (e^-x - 1 + q) = 1 - e^x (1 - q)
    kept = np.exp(x + log_rest + scipy.special.log_ndtr(cut / sigma))
    delta = kept - rate * np.exp(x + scipy.special.log_ndtr((cut - 1) / sigma))
    return np.where(inside, np.clip(delta, 0, 1), 0.0)


def _replaced_step(rate: float, sigma: float, losses: Losses) -> Losses:
    """P = (1-q) N(0) + q N(1), Q = (1-q) N(0) + q N(-1); its own mirror image.

    The ratio rises with the output y, and passes e^x where u = e^(y / sigma^2) solves
    q w u^2 + (1-q)(1 - e^x) u - q w e^x = 0 with w = e^(-1 / (2 sigma^2)).
    """
    x = np.abs(losses)
    # Divided by e^x and written for v = u e^-x, so that nothing overflows for large x.
    weight = rate * math.exp(-0.5 / sigma**2)
    gain = -(1 - rate) * np.expm1(-x)
    root = np.sqrt(gain**2 + 4 * weight**2 * np.exp(-x))
    cut = sigma**2 * (x + np.log((gain + root) / (2 * weight)))
    stay = (1 - rate) * np.exp(np.log(-np.expm1(-x), where=x > 0, out=np.full_like(x, -np.inf))
                               + x + scipy.special.log_ndtr(-cut / sigma))  # fmt: skip
    moved = rate * (
        scipy.special.ndtr((1 - cut) / sigma)
        - np.exp(x + scipy.special.log_ndtr((-1 - cut) / sigma))
    )
    delta = np.clip(moved - stay, 0, 1)
    # Symmetric pairs: delta(-x) = 1 - e^-x + e^-x delta(x).
    mirrored: Losses = np.where(losses >= 0, delta, -np.expm1(-x) + np.exp(-x) * delta)
    return mirrored


def _log_ratio(rate: float, sigma: float, output: float) -> float:
    """ln((1-q) + q exp((2y - 1) / (2 sigma^2)))."""
    shift = (2 * output - 1) / (2 * sigma**2)
    if rate == 1:
        return shift
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + shift))


def _log_minus(larger: Losses, smaller: float) -> Losses:
    """ln(e^larger - e^smaller) for larger > smaller."""
    result: Losses = larger + np.log(-np.expm1(smaller - larger))
    return result
