"""Which queries the teachers objected to: AboveThreshold, restarted after every objection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from dpal import check
from dpal.accounting.events.discrete_laplace import PURE_EPSILONS
from dpal.accounting.events.event import Event
from dpal.accounting.rdp import ORDERS, Curve
from dpal.accounting.single_step_curves import (
    Direction,
    DpEvent,
    Losses,
    MechanismStep,
    PrivacyLossDistribution,
)
from dpal.privacy import Adjacency


@dataclass(frozen=True)
class PureStep(MechanismStep):
    """Any release whose loss is bounded: none tells more than a randomized response.

    Attributes:
      epsilon: largest loss, in both directions.

    Source: Kairouz, Oh & Viswanath (2015), "The composition theorem for differential privacy".
    """

    chooses_grid: ClassVar[bool] = False
    epsilon: float

    def delta(self, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
        """Of a bit that is told rightly with chance 1 / (1 + exp(-epsilon))."""
        inside = np.clip(losses, -self.epsilon, self.epsilon)
        told = -np.expm1(inside - self.epsilon) / (1 + math.exp(-self.epsilon))
        return np.where(losses < -self.epsilon, -np.expm1(np.minimum(losses, 0)), told)

    def reach(self, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
        """Both losses."""
        return -self.epsilon, self.epsilon

    @property
    def spread(self) -> float:
        """A part of it: grids are fine, as its two losses must not move far."""
        return self.epsilon / 16

    def renyi(self, adjacency: Adjacency) -> Curve:
        """Of that bit."""
        grow = (ORDERS - 1) * self.epsilon
        right, wrong = -math.log1p(math.exp(-self.epsilon)), -self.epsilon
        moments = right + np.logaddexp(grow, wrong - grow)
        return np.asarray(np.minimum(moments / (ORDERS - 1), self.epsilon))

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """From both chances of that bit; their own would move each loss up to the grid."""
        from dp_accounting.pld import pld_pmf
        from dp_accounting.pld import privacy_loss_distribution as pld

        right, wrong = 1 / (1 + math.exp(-self.epsilon)), 1 / (1 + math.exp(self.epsilon))
        most = math.ceil(self.epsilon / width)
        grid = np.arange(-most, most + 1)
        here, there = np.array([[right, wrong]]), np.array([[wrong, right]])
        deltas = np.maximum(here - np.exp(grid * width)[:, None] * there, 0.0).sum(axis=1)
        return pld.PrivacyLossDistribution(
            pld_pmf.create_pmf_pessimistic_connect_dots(width, grid, deltas)
        )

    def dp_event(self) -> DpEvent:
        """Their randomized response: a uniform bit with twice the chance of a wrong one."""
        from dp_accounting import dp_event

        return dp_event.RandomizedResponseDpEvent(2 / (1 + math.exp(self.epsilon)), 2)


@dataclass(frozen=True, kw_only=True)
class SparseVector(Event):
    """Which queries the teachers objected to, up to so many of them; not what they said.

    Each run of AboveThreshold, up to its objection, loses at most epsilon when one ballot of every
    query is replaced, under both adjacencies, however many queries it passes.

    Attributes:
      stops: objections, after each of which it starts again with noise of its own.
      epsilon: largest loss of one run.

    Source: Dwork & Roth (2014), Algorithm 1 and Theorem 3.23; docs/guarantee.md.
    """

    mechanism = "sparse_vector"
    is_vote = True
    stops: int
    epsilon: float

    def __post_init__(self) -> None:
        check.at_least(1, stops=self.stops)
        check.within(*PURE_EPSILONS, epsilon=self.epsilon)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more, then fewer objections."""
        return (
            cls(stops=10, epsilon=0.5),
            cls(stops=10, epsilon=0.2),
            cls(stops=3, epsilon=0.2),
        )

    def composition(self) -> tuple[MechanismStep, int]:
        """Run by run."""
        return PureStep(self.epsilon), self.stops

    def second_renyi(self, orders: Curve) -> Curve:
        """Of the same bits, from their chances."""
        right, wrong = 1 / (1 + math.exp(-self.epsilon)), 1 / (1 + math.exp(self.epsilon))
        rest = right + wrong * np.exp(-2 * (orders - 1) * self.epsilon)
        return np.asarray(self.stops * (self.epsilon + np.log(rest) / (orders - 1)))
