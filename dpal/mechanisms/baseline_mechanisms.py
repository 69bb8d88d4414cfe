"""Mechanisms that exist for comparison only, and are never offered to a campaign.

Each one turns scores into keys to rank by, at a stated cost, so that a report can show on
public or simulated data what the campaign's mechanisms gain. The event next to a sampler
holds under zero-out adjacency (`NeighboringRelation.REPLACE_SPECIAL`); a blank record
scores 0. Source: Schwethelm et al. (2025), "Differentially private active learning", Fig. 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, singledispatch

import numpy as np
import scipy
from dp_accounting import dp_event
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.events import LAPLACE_GRID, PURE_EPSILONS
from dpal.errors import ParameterError
from dpal.mechanisms.discrete_laplace import laplace_noise
from dpal.mechanisms.gaussian import standard_normal
from dpal.mechanisms.poisson_sampling import include
from dpal.mechanisms.randomized_response import anchored_rates, randomized_responses
from dpal.randomness import BitSource

Scores = NDArray[np.float64]
Keys = NDArray[np.int64] | NDArray[np.float64]


@singledispatch
def keys(mechanism: object, scores: Scores, *, rng: BitSource) -> Keys:
    """Turns scores into keys; the records with the highest keys are selected.

    Args:
      mechanism: one of the values below.
      scores: (n,), each in [0, 1], higher is more wanted.
      rng: source of random words.

    Returns:
      (n,) keys; the caller breaks ties at random.

    Raises:
      ParameterError: the mechanism is not registered, or a score lies outside of [0, 1].
    """
    raise ParameterError(f"{type(mechanism).__name__} has no registered sampler")


@singledispatch
def dp_event_of(mechanism: object) -> dp_event.DpEvent:
    """Names what one selection costs each record of the pool, under zero-out adjacency.

    Raises:
      ParameterError: the mechanism is not registered.
    """
    raise ParameterError(f"{type(mechanism).__name__} has no registered dp-accounting event")


@dataclass(frozen=True, kw_only=True)
class _Clipped:
    """What the mechanisms that add noise to a score have in common.

    Attributes:
      epsilon: loss that the noise is drawn for.
      width: scores above it are clipped to it; 1, the whole range, clips nothing.
    """

    epsilon: float
    width: float

    def __post_init__(self) -> None:
        check.within(*PURE_EPSILONS, epsilon=self.epsilon)
        check.positive(width=self.width)
        check.within(0, 1, width=self.width)

    def on_grid(self, scores: Scores) -> NDArray[np.int64]:
        """Clips scores to [0, width] and rounds them to 0..LAPLACE_GRID."""
        _check_scores(scores)
        return np.rint(np.minimum(scores, self.width) * (LAPLACE_GRID / self.width)).astype(
            np.int64
        )


@dataclass(frozen=True, kw_only=True)
class LaplaceScores(_Clipped):
    """Laplace noise of scale width / epsilon on every score; pure loss epsilon."""


@keys.register
def _(mechanism: LaplaceScores, scores: Scores, *, rng: BitSource) -> Keys:
    return mechanism.on_grid(scores) + laplace_noise(scores.size, mechanism.epsilon, rng=rng)


@dp_event_of.register
def _(mechanism: LaplaceScores) -> dp_event.DpEvent:
    return dp_event.DiscreteLaplaceDpEvent(mechanism.epsilon / LAPLACE_GRID, LAPLACE_GRID)


@dataclass(frozen=True, kw_only=True)
class GaussianScores(_Clipped):
    """Gaussian noise on every score.

    Attributes:
      delta: failure probability of the loss epsilon.
    """

    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check.inside(0, 1, delta=self.delta)

    @property
    def noise_multiplier(self) -> float:
        """Noise standard deviation over `width`."""
        return _analytic_noise_multiplier(self.epsilon, self.delta)


@keys.register
def _(mechanism: GaussianScores, scores: Scores, *, rng: BitSource) -> Keys:
    return mechanism.on_grid(scores) + _grid_noise(scores.size, mechanism, rng=rng)


@dp_event_of.register
def _(mechanism: GaussianScores) -> dp_event.DpEvent:
    return dp_event.GaussianDpEvent(mechanism.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class SubsampledGaussianScores(GaussianScores):
    """Gaussian noise on the scores of a Poisson subsample, and on 0 for all others.

    A record outside of the sample answers as the blank record does. Were it left out
    instead, its absence from the keys would show, and nothing would be amplified.

    Attributes:
      sample_rate: chance that a record answers with its own score; above delta.
    """

    sample_rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check.within(0, 1, sample_rate=self.sample_rate)
        # At or above its rate a sample would need no noise at all.
        check.inside(0, self.sample_rate, delta=self.delta)

    @property
    def noise_multiplier(self) -> float:
        """Noise standard deviation over `width`, for the loss with the coin included.

        Source: Balle, Barthe & Gaboardi (2018), "Privacy amplification by subsampling":
        the sampled mechanism may lose ln(1 + (e^epsilon - 1) / q) with delta / q.
        """
        # Both are rounded down: a smaller allowance asks for more noise.
        sampled = math.log1p(math.expm1(self.epsilon) / self.sample_rate) * (1 - 1e-12)
        return _analytic_noise_multiplier(sampled, self.delta / self.sample_rate * (1 - 1e-12))


@keys.register
def _(mechanism: SubsampledGaussianScores, scores: Scores, *, rng: BitSource) -> Keys:
    on_grid = mechanism.on_grid(scores)
    answering = np.zeros_like(on_grid)
    sampled = include(scores.size, mechanism.sample_rate, rng=rng)
    answering[sampled] = on_grid[sampled]
    return answering + _grid_noise(scores.size, mechanism, rng=rng)


@dp_event_of.register
def _(mechanism: SubsampledGaussianScores) -> dp_event.DpEvent:
    noise = dp_event.GaussianDpEvent(mechanism.noise_multiplier)
    return dp_event.PoissonSampledDpEvent(mechanism.sample_rate, noise)


@dataclass(frozen=True, kw_only=True)
class ExponentialWeights(_Clipped):
    """Draws records one by one, without replacement, weighted by e^(epsilon score / width).

    Ranking by score plus Gumbel noise draws exactly so (Durfee & Rogers, 2019). Private is
    only who was selected, in which order. A key is not: the lower tail of Gumbel noise is
    so thin that no epsilon bounds what a released key tells.

    Attributes:
      pool: number of records drawn from.
      selected: number of records drawn, below `pool`.
    """

    pool: int
    selected: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check.within(1, self.pool - 1, selected=self.selected)

    @property
    def loss(self) -> float:
        """Pure loss of one record, over all draws of the selection.

        Weights lie in [1, e^epsilon], and blanking one record changes its own only. Being
        drawn changes the chance by e^epsilon at most; each draw of another record changes
        it the other way, by (m + e^epsilon) / (m + 1) at most while m others are left. These
        reach e^epsilon when about 1 - exp(-epsilon / (e^epsilon - 1)) of the pool is drawn.
        """
        others = self.pool - 1.0 - np.arange(self.selected)
        passed_over = np.log1p(math.expm1(self.epsilon) / (others + 1)).sum()
        return max(self.epsilon, float(passed_over))


@keys.register
def _(mechanism: ExponentialWeights, scores: Scores, *, rng: BitSource) -> Keys:
    uniform = ((rng.words(scores.size) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    gumbel: Scores = -np.log(-np.log(uniform))
    return gumbel + mechanism.on_grid(scores) * (mechanism.epsilon / LAPLACE_GRID)


@dp_event_of.register
def _(mechanism: ExponentialWeights) -> dp_event.DpEvent:
    # With sensitivity 1 its loss is always +-epsilon: the pair that dominates every
    # mechanism of this pure loss (Kairouz, Oh & Viswanath, 2015).
    return dp_event.DiscreteLaplaceDpEvent(mechanism.loss, 1)


@dataclass(frozen=True, kw_only=True)
class SymmetricResponse:
    """Randomised response to "is your score at least the threshold?", blank rate 1/2.

    Attributes:
      epsilon: pure loss of one answer against the blank record.
      threshold: public; records that reach it are wanted.
    """

    epsilon: float
    threshold: float

    def __post_init__(self) -> None:
        check.within(*PURE_EPSILONS, epsilon=self.epsilon)
        check.within(0, 1, threshold=self.threshold)

    @property
    def rates(self) -> tuple[float, float]:
        """Rate of yes where wanted, and elsewhere."""
        return anchored_rates(self.epsilon, 0.5)


@keys.register
def _(mechanism: SymmetricResponse, scores: Scores, *, rng: BitSource) -> Keys:
    _check_scores(scores)
    above, below = mechanism.rates
    said_yes = randomized_responses(
        scores >= mechanism.threshold, above=above, below=below, rng=rng
    )
    return said_yes.astype(np.int64)


@dp_event_of.register
def _(mechanism: SymmetricResponse) -> dp_event.DpEvent:
    # A true answer keeps half of the noise: 1 - noise / 2 = above, noise / 2 = below.
    above, below = mechanism.rates
    return dp_event.RandomizedResponseDpEvent(2 * min(1 - above, below), 2)


@cache
def _analytic_noise_multiplier(epsilon: float, delta: float) -> float:
    """Finds the least Gaussian noise over sensitivity that is (epsilon, delta) private.

    The search ends on the private side of its bracket, about 10^-8 of itself above the least.

    Source: Balle & Wang (2018), "Improving the Gaussian mechanism for DP", Thm. 8.
    """

    def is_private(noise_multiplier: float) -> bool:
        half, shift = 0.5 / noise_multiplier, epsilon * noise_multiplier
        spent = scipy.special.ndtr(half - shift) - math.exp(
            epsilon + scipy.special.log_ndtr(-half - shift)
        )
        # The two terms share up to 7 digits; float64 leaves the rest of its 16.
        return bool(spent * (1 + 1e-8) <= delta)

    low, high = 0.5, 1.0
    while not is_private(high):
        low, high = high, 2 * high
    while is_private(low):
        low, high = low / 2, low
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_private(middle) else (middle, high)
    return high


def _check_scores(scores: Scores) -> None:
    if not ((scores >= 0) & (scores <= 1)).all():
        raise ParameterError("a score lies outside of [0, 1]; nothing was drawn")


def _grid_noise(count: int, mechanism: GaussianScores, *, rng: BitSource) -> NDArray[np.int64]:
    """Gaussian noise in whole steps of the grid.

    Adding it to a whole number equals adding the real noise and rounding afterwards, so
    the rounding costs nothing.
    """
    noise = standard_normal(count, rng=rng) * (mechanism.noise_multiplier * LAPLACE_GRID)
    return np.rint(noise).astype(np.int64)
