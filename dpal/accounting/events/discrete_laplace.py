"""Discrete Laplace noise as a step of events: what noisy scores and noisy counts have in common.

Source: Mironov (2017), Prop. 6, for Rényi divergences; the hockey-stick curve of discrete noise is
derived in docs/guarantee.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpal.accounting.rdp import ORDERS, Curve
from dpal.accounting.single_step_curves import (
    Direction,
    DpEvent,
    Losses,
    MechanismStep,
    PrivacyLossDistribution,
)
from dpal.privacy import Adjacency

LAPLACE_GRID = 1 << 16  # steps over the range of a score; the rounding is far below the noise
PURE_EPSILONS = (2.0**-20, 64.0)  # for which such noise, or a randomized response, is drawn


@dataclass(frozen=True)
class Laplace(MechanismStep):
    """Discrete Laplace noise, shifted by the whole grid; mirror-symmetric.

    Attributes:
      epsilon: largest loss.
    """

    chooses_grid: ClassVar[bool] = False  # on one as coarse as its variance allows it would move
    epsilon: float

    def delta(self, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
        """Under both adjacencies the range bounds the change of a score.

        With weight w = exp(-epsilon / LAPLACE_GRID) per grid step, outputs below m + 1 have
        losses above x for m = ceil((LAPLACE_GRID - x * LAPLACE_GRID / epsilon) / 2) - 1.
        """
        step = self.epsilon / LAPLACE_GRID
        last = np.ceil((LAPLACE_GRID - losses / step) / 2) - 1
        last = np.clip(last, 0, LAPLACE_GRID - 1)
        beyond = 1 / (1 + math.exp(-step))
        with_record = 1 - np.exp(-step * (last + 1)) * beyond
        without = np.exp(-step * (LAPLACE_GRID - last)) * beyond
        delta = with_record - np.exp(np.minimum(losses, self.epsilon)) * without
        delta = np.where(losses >= self.epsilon, 0.0, delta)
        return np.where(losses <= -self.epsilon, -np.expm1(np.minimum(losses, 0)), delta)

    def reach(self, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
        """Both ends."""
        return -self.epsilon, self.epsilon

    @property
    def spread(self) -> float:
        """At most the largest loss."""
        return self.epsilon

    def renyi(self, adjacency: Adjacency) -> Curve:
        """Of continuous noise, raised to what a grid can add."""
        # On a grid of 2**16 steps the discrete one differs by less than the factor: the chance
        # of its atom at +epsilon is 1 / (1 + w) <= (1 + epsilon / LAPLACE_GRID) / 2.
        grow = np.log(ORDERS / (2 * ORDERS - 1)) + self.epsilon * (ORDERS - 1)
        fall = np.log((ORDERS - 1) / (2 * ORDERS - 1)) - self.epsilon * ORDERS
        moments = np.logaddexp(grow, fall) + self.epsilon / LAPLACE_GRID
        return np.asarray(np.minimum(moments / (ORDERS - 1), self.epsilon))

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """Their continuous Laplace noise."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_laplace_mechanism(1 / self.epsilon, value_discretization_interval=width)

    def dp_event(self) -> DpEvent:
        """The same."""
        from dp_accounting import dp_event

        return dp_event.LaplaceDpEvent(1 / self.epsilon)
