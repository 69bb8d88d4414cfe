"""Rényi accounting of Poisson-subsampled Gaussian steps.

The log-moments are integrated numerically. The integrand is analytic and decays like a
Gaussian, so the trapezoidal rule is exact to about 1e-12 and serves every order, whole
or not (Trefethen & Weideman, 2014), where the usual series diverges for some.

Source:
  Curve: Mironov, Talwar & Zhang (2019), Sec. 3; its Theorem 5 shows that "removing" is
    the worse direction for zero-out.
  Conversion: Canonne, Kamath & Steinke (2020), Prop. 12.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, singledispatch
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.events import (
    SCORE_GRID,
    Event,
    NoisyCounts,
    NoisyMajorities,
    NoisyMoments,
    NoisyScores,
    NoisyThreshold,
    NoisyVotes,
    PhaseExposure,
    VotesWithin,
)
from dpal.accounting.votes.majority import answers_of, worst_divergence
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

Curve = NDArray[np.float64]

ORDERS: Final = np.array(
    [x / 10 for x in range(11, 110)] + list(range(11, 65)) + [80, 96, 128, 192, 256, 512]
)
_LOG_RANGE = 13.0  # half-width of the grid in standard deviations; the rest is below 1e-36


def epsilon_spent(
    history: Sequence[Event],
    *,
    delta: float,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
) -> float:
    """Bounds the privacy loss of a cohort over the phases it trained in.

    Args:
      history: exposures, thresholds and noisy scores; order does not matter.
      delta: failure probability, strictly between 0 and 1.
      adjacency: which change of the data the bound speaks of.

    Returns:
      An upper bound on epsilon (natural log); 0.0 when the cohort was never trained on.

    Raises:
      ParameterError: delta is not in (0, 1).

    >>> epsilon_spent([], delta=1e-5)
    0.0
    """
    check.inside(0, 1, delta=delta)
    # Adding curves before converting is what makes composition tight: the best order
    # for the sum is rarely the best order for any single phase.
    total: Curve = np.sum([np.zeros(ORDERS.size), *(curve(e, adjacency) for e in history)], axis=0)
    return to_epsilon(total, delta=delta) if total.any() else 0.0


@singledispatch
def curve(event: object, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Curve:
    """Bounds the Rényi divergence of an event at every order of `ORDERS`, shape (n_orders,).

    Raises:
      ParameterError: the event has no Rényi curve.
    """
    raise ParameterError(f"{type(event).__name__} has no Renyi curve")


@curve.register
def _(event: PhaseExposure, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Curve:
    if event.steps == 0 or event.sample_rate == 0:
        return np.zeros(ORDERS.size)
    return event.steps * _step(event.sample_rate, event.noise_multiplier, adjacency)


@curve.register
def _(event: NoisyThreshold, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Curve:
    return ORDERS / (2 * event.noise_multiplier**2)


@curve.register
def _(event: NoisyScores, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Curve:
    # Mironov (2017), Prop. 6, for continuous noise. On a grid of 2**16 steps the discrete
    # one differs by less than the factor: the chance of its atom at +epsilon is
    # 1 / (1 + w) <= (1 + epsilon / SCORE_GRID) / 2.
    grow = np.log(ORDERS / (2 * ORDERS - 1)) + event.epsilon * (ORDERS - 1)
    fall = np.log((ORDERS - 1) / (2 * ORDERS - 1)) - event.epsilon * ORDERS
    moments = np.logaddexp(grow, fall) + event.epsilon / SCORE_GRID
    return np.asarray(np.minimum(moments / (ORDERS - 1), event.epsilon))


@curve.register
def _(event: NoisyMoments, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Curve:
    return ORDERS / (2 * event.noise_multiplier**2)


@curve.register
def _(event: NoisyCounts, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Curve:
    # The moved counts have independent noise: their curves add up.
    return event.moved * curve(NoisyScores(epsilon=event.epsilon), adjacency)


@curve.register
def _(event: NoisyVotes, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Curve:
    return ORDERS / (2 * event.noise_multiplier**2)


@curve.register
def _(event: NoisyMajorities, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Curve:
    return event.answers * worst_divergence(answers_of(event), tuple(ORDERS))


@curve.register
def _(event: VotesWithin, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Curve:
    # Known at one order; its failure is taken out of delta, as a threshold's overflow is.
    known = np.isclose(ORDERS, event.order, rtol=0, atol=1e-9)
    return np.where(known, event.divergence, np.inf)


def to_epsilon(total: Curve, *, delta: float) -> float:
    """Converts a Rényi curve over `ORDERS` to the smallest epsilon that it proves."""
    slack = np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return max(0.0, float(np.min(total + slack)))


@lru_cache(maxsize=4096)
def _step(sample_rate: float, noise_multiplier: float, adjacency: Adjacency) -> Curve:
    """Rényi divergence of one step at every order, or infinity where it is of no use."""
    divergence = np.full(ORDERS.size, np.inf)
    # Beyond about sigma^2 ln(1/q) the divergence explodes; such orders never decide, and
    # leaving them at infinity is safe.
    useful = 16 + 8 * noise_multiplier**2 * (1 - math.log(sample_rate))
    # Large orders need a wide grid, small ones a fine one: integrate them apart.
    for part in (ORDERS <= 16, (ORDERS > 16) & (useful >= ORDERS)):
        orders = ORDERS[part]
        if orders.size:
            moments = _log_moments(orders, sample_rate, noise_multiplier, adjacency)
            divergence[part] = np.maximum(moments / (orders - 1), 0.0)
    divergence.flags.writeable = False
    return divergence


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
