"""Votes whose own cost was told first, with noise, and that left only if it was within a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dpal import check
from dpal.accounting.events.event import Event
from dpal.accounting.rdp import ORDERS, Curve
from dpal.accounting.single_step_curves import (
    Direction,
    DpEvent,
    Losses,
    MechanismStep,
    PrivacyLossDistribution,
)
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

LEAST_DELTA = 1e-15  # at which a divergence at one order becomes a loss distribution


@dataclass(frozen=True, kw_only=True)
class CostBoundedVotes(Event):
    """Votes whose own cost was told first, with noise, and that left only if it was within a limit.

    What the votes that were cast cost is private; an upper bound of it is released with noise
    in proportion to its smooth sensitivity, and the answers only where that is within a limit
    set beforehand. On votes that cost more they leave with chance `failure` at most.

    Its loss is known at one order alone, and may fail to hold: no sum over campaigns can count it.

    Attributes:
      order: Rényi order, chosen without the votes, as everything here.
      divergence: the price of the bound plus the limit, at that order.
      failure: chance that the bound is below what it bounds; counts as delta.
    """

    mechanism = "votes_within"
    adds_up = False
    is_vote = True
    renyi_is_tighter = True
    order: float
    divergence: float
    failure: float

    def __post_init__(self) -> None:
        check.at_least(1.1, order=self.order)
        check.positive(divergence=self.divergence)
        check.within(0, 1, failure=self.failure)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From a dear limit to a cheap one."""
        dear = cls(order=8.0, divergence=1.5, failure=1e-9)
        return dear, replace(dear, divergence=0.5)

    @property
    def pure(self) -> float:
        """Epsilon of the divergence at `LEAST_DELTA`: loose, for accountants without orders."""
        slack = math.log1p(-1 / self.order)
        slack -= (math.log(LEAST_DELTA) + math.log(self.order)) / (self.order - 1)
        return self.divergence + slack

    def composition(self) -> tuple[MechanismStep, int]:
        """A loss that is bounded, or fails."""
        return ApproximateDpStep(self.pure, min(1.0, self.failure + LEAST_DELTA)), 1

    def renyi(self, adjacency: Adjacency) -> Curve:
        """Known at one order; its failure is taken out of delta, as a threshold's is."""
        is_own_order = np.isclose(ORDERS, self.order, rtol=0, atol=1e-9)
        return np.where(is_own_order, self.divergence, np.inf)

    @property
    def delta(self) -> float:
        """The chance that the bound fails."""
        return self.failure

    def second_renyi(self, orders: Curve) -> Curve:
        """At its order."""
        return np.where(np.abs(orders - self.order) < 1e-9, self.divergence, np.inf)


@dataclass(frozen=True)
class ApproximateDpStep(MechanismStep):
    """Any release that is (epsilon, delta)-private: randomised response, and a failure.

    Attributes:
      epsilon: largest loss.
      fails: chance of more.
    """

    epsilon: float
    fails: float

    def delta(self, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
        """Of the worst such release."""
        most, fails = self.epsilon, self.fails
        inside = np.clip(losses, -most, most)
        told = -np.expm1(inside - most) / (1 + math.exp(-most))
        told = np.where(losses < -most, -np.expm1(np.minimum(losses, 0)), told)
        return np.where(losses >= most, fails, fails + (1 - fails) * told)

    def reach(self, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
        """Both ends."""
        return -self.epsilon, self.epsilon

    @property
    def spread(self) -> float:
        """Small: its few losses must not move far."""
        return 0.05

    def renyi(self, adjacency: Adjacency) -> Curve:
        """None: what may fail has no divergence."""
        raise ParameterError("an (epsilon, delta) claim has no Renyi curve")

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """Their distribution of such a claim."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        claimed = pld.common.DifferentialPrivacyParameters(self.epsilon, self.fails)
        return pld.from_privacy_parameters(claimed, width)

    def dp_event(self) -> DpEvent:
        """None."""
        raise ParameterError("dp-accounting has no event for an (epsilon, delta) claim")
