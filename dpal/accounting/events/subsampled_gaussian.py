"""DP-SGD: Gaussian noise on sums over batches that every record joins by chance.

The Rényi log-moments are integrated numerically. The integrand is analytic and decays like a
Gaussian, so the trapezoidal rule is exact to about 1e-12 and serves every order, whole
or not (Trefethen & Weideman, 2014), where the usual series diverges for some.

Source:
  Rényi: Mironov, Talwar & Zhang (2019), Sec. 3; its Theorem 5 shows that "removing" is
    the worse direction for zero-out.
  Hockey stick: Zhu, Dong & Wang (2022), "Optimal accounting of differential privacy via
    characteristic function"; the form for replace-one is derived in docs/guarantee.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
import scipy

from dpal import check
from dpal.accounting.events.event import Event
from dpal.accounting.rdp import ORDERS, Curve
from dpal.accounting.single_step_curves import (
    REACH,
    Direction,
    DpEvent,
    Gaussian,
    Losses,
    MechanismStep,
    PrivacyLossDistribution,
)
from dpal.privacy import Adjacency

_LOG_RANGE = 13.0  # half-width of the grid in standard deviations; the rest is below 1e-36
_LEAST_SIGMA = 0.05  # below, a grid takes gigabytes, and a chance to join saves next to nothing


@dataclass(frozen=True, kw_only=True)
class PhaseExposure(Event):
    """What DP-SGD does to the records of one cohort during one phase.

    Attributes:
      steps: optimizer steps in the phase.
      sample_rate: chance that a record of the cohort joins a batch.
      noise_multiplier: noise standard deviation over max_grad_norm.
    """

    mechanism = "poisson_subsampled_gaussian"
    steps: int
    sample_rate: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check.at_least(0, steps=self.steps)
        check.within(0, 1, sample_rate=self.sample_rate)
        check.positive(noise_multiplier=self.noise_multiplier)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more, then fewer steps, then a lower rate."""
        dear = cls(steps=200, sample_rate=0.05, noise_multiplier=1.0)
        quiet = replace(dear, noise_multiplier=1.5)
        return dear, quiet, replace(quiet, steps=50), replace(quiet, steps=50, sample_rate=0.01)

    def composition(self) -> tuple[MechanismStep, int]:
        """A step on a batch; none where nobody joins one."""
        count = self.steps if self.sample_rate else 0
        return SampledGaussian(self.sample_rate, self.noise_multiplier), count

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """Composed as theirs are, also where it is one step."""
        if not self.composition()[1]:
            return super().second_opinion(adjacency, width)
        step = SampledGaussian(self.sample_rate, self.noise_multiplier)
        return step.second_opinion(adjacency, width).self_compose(self.steps)

    @property
    def training_steps(self) -> int:
        """All of them."""
        return self.steps

    def thinned(self, participation: float) -> Self:
        """With a lower sample rate."""
        return replace(self, sample_rate=participation * self.sample_rate)


@dataclass(frozen=True)
class SampledGaussian(MechanismStep):
    """One step of DP-SGD.

    Attributes:
      rate: chance that the record joins the batch, above 0.
      sigma: standard deviation of the noise over what one record can change.
    """

    rate: float
    sigma: float

    def delta(self, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
        """By closed forms."""
        if adjacency is Adjacency.REPLACE_ONE:
            return _replaced_step(self.rate, self.sigma, losses)
        if direction is Direction.REMOVE:
            return _removed_step(self.rate, self.sigma, losses)
        return _added_step(self.rate, self.sigma, losses)

    def reach(self, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
        """Of outputs within `REACH` standard deviations."""
        rate, sigma = self.rate, self.sigma
        far = REACH * sigma
        if adjacency is Adjacency.REPLACE_ONE:
            most = float(_log_ratio(rate, sigma, 1 + far) - _log_ratio(rate, sigma, -1 - far))
            return -most, most
        if direction is Direction.REMOVE:
            return float(_log_ratio(rate, sigma, -far)), float(_log_ratio(rate, sigma, 1 + far))
        return -float(_log_ratio(rate, sigma, far)), -float(_log_ratio(rate, sigma, -far))

    @property
    def spread(self) -> float:
        """The smaller of two bounds."""
        # The first bound overflows for tiny sigma, where the second is the smaller one.
        amplified = self.rate * math.sqrt(math.expm1(min(50.0, self.sigma**-2)))
        return min(amplified, 1 / self.sigma)

    def renyi(self, adjacency: Adjacency) -> Curve:
        """Integrated; infinite at orders that are of no use."""
        return _divergence(self, adjacency)

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """Their subsampled Gaussian."""
        from dp_accounting.pld import privacy_loss_distribution as pld
        from dp_accounting.privacy_accountant import NeighboringRelation

        zero_out = adjacency is Adjacency.ZERO_OUT
        return pld.from_gaussian_mechanism(
            self.sigma,
            sampling_prob=self.rate,
            value_discretization_interval=width,
            neighboring_relation=NeighboringRelation.REPLACE_SPECIAL
            if zero_out
            else NeighboringRelation.REPLACE_ONE,
        )

    def dp_event(self) -> DpEvent:
        """Their Poisson-sampled Gaussian."""
        from dp_accounting import dp_event

        return dp_event.PoissonSampledDpEvent(self.rate, dp_event.GaussianDpEvent(self.sigma))


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


@lru_cache(maxsize=4096)
def _divergence(step: SampledGaussian, adjacency: Adjacency) -> Curve:
    """Rényi divergence of one step at every order, or infinity where it is of no use."""
    if step.sigma < _LEAST_SIGMA:
        return _as_if_it_joined(step, adjacency)
    divergence = np.full(ORDERS.size, np.inf)
    # Beyond about sigma^2 ln(1/q) the divergence explodes; such orders never decide, and
    # leaving them at infinity is safe.
    useful = 16 + 8 * step.sigma**2 * (1 - math.log(step.rate))
    # Large orders need a wide grid, small ones a fine one: integrate them apart.
    for part in (ORDERS <= 16, (ORDERS > 16) & (useful >= ORDERS)):
        orders = ORDERS[part]
        if orders.size:
            moments = _log_moments(orders, step.rate, step.sigma, adjacency)
            divergence[part] = np.maximum(moments / (orders - 1), 0.0)
    divergence.flags.writeable = False
    return divergence


def _as_if_it_joined(step: SampledGaussian, adjacency: Adjacency) -> Curve:
    """Bounds the divergence: mixing two laws with a third brings them no further apart.

    Under replace-one Q is also at least (1-q) times the law of those who do not join.
    """
    blanked = Gaussian(step.sigma).renyi(adjacency)
    if adjacency is Adjacency.ZERO_OUT:
        return blanked
    absent = -math.log1p(-step.rate) if step.rate < 1 else math.inf
    return np.minimum(blanked + absent, Gaussian(step.sigma / 2).renyi(adjacency))


def _log_moments(orders: Curve, rate: float, sigma: float, adjacency: Adjacency) -> Curve:
    """Ln E_Q[(P/Q)^order] for the dominating pair of the adjacency, shape (n_orders,).

    zero_out: P = (1-q) N(0) + q N(1), Q = N(0).
    replace_one: P as above, Q = (1-q) N(0) + q N(-1); the pair is its own mirror image.
    All with variance sigma^2.
    """
    # The error is about exp(-2 pi d / spacing) for an integrand analytic within d of the
    # real axis: d = pi sigma^2 (the zeros of the mixture), so below 1e-25 for every sigma.
    spacing = sigma * min(1, sigma) / 3
    reach = float(orders.max()) * (1 if adjacency is Adjacency.ZERO_OUT else 2)
    x = np.arange(-1 - _LOG_RANGE * sigma, reach + _LOG_RANGE * sigma, spacing)
    base = -((x / sigma) ** 2) / 2 - math.log(sigma) - math.log(2 * math.pi) / 2
    shift = 2 * sigma**2
    p = base + _log_mix(rate, (2 * x - 1) / shift)
    q = base if adjacency is Adjacency.ZERO_OUT else base + _log_mix(rate, (-2 * x - 1) / shift)
    moments = scipy.special.logsumexp(orders[:, None] * (p - q)[None, :] + q[None, :], axis=1)
    return np.asarray(moments + math.log(spacing))


def _log_mix(rate: float, log_ratio: Curve) -> Curve:
    """ln(1 - rate + rate * exp(log_ratio)) without overflow."""
    if rate == 1:
        return log_ratio
    return np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio)
