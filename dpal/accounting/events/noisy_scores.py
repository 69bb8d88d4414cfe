"""Noisy scores: discrete Laplace noise, whose privacy loss is bounded.

Source: Mironov (2017), Prop. 6, for Rényi divergences; the hockey-stick curve of discrete noise is
derived in docs/guarantee.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from dpal import check
from dpal.accounting.curves import (
    Direction,
    DpEvent,
    Losses,
    MechanismStep,
    PrivacyLossDistribution,
)
from dpal.accounting.events.event import Cells, Event
from dpal.accounting.rdp import ORDERS, Curve
from dpal.privacy import Adjacency

SCORE_GRID = 1 << 16  # steps over the range of a score; the rounding is far below the noise
SELECTION_RANGE = (2.0**-20, 64.0)  # the epsilons that the noise of one selection is drawn for


@dataclass(frozen=True, kw_only=True)
class NoisyScores(Event):
    """One noisy score per unlabeled record, with Laplace noise of scale range / epsilon.

    The noise is discrete, on a grid of `SCORE_GRID` steps over the range.

    Attributes:
      epsilon: pure loss of one record's score; the score range bounds its sensitivity
        under both adjacencies.
    """

    mechanism = "laplace"
    epsilon: float

    def __post_init__(self) -> None:
        check.within(*SELECTION_RANGE, epsilon=self.epsilon)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more."""
        return cls(epsilon=2.0), cls(epsilon=0.25), cls(epsilon=0.05)

    def composition(self) -> tuple[MechanismStep, int]:
        """All of it."""
        return Laplace(self.epsilon), 1

    @property
    def pure_epsilon(self) -> float:
        """Of one record's score."""
        return self.epsilon

    def loss_cells(self, spacing: float) -> Cells:
        """Of continuous Laplace noise."""
        bound = math.ceil(self.epsilon / spacing)
        edges = spacing * np.arange(-bound, bound + 1, dtype=np.float64)
        # Output y of a shift by 1 has loss epsilon * (1 - 2 y) for y between 0 and 1.
        y = np.clip((1 - edges / self.epsilon) / 2, 0, 1)
        above = np.where(y > 0, 1 - np.exp(-self.epsilon * y) / 2, 0.5)
        above_blank = np.exp(-self.epsilon * (1 - y)) / 2
        # Beyond both ends lie the atoms at +-epsilon.
        above[edges >= self.epsilon] = above_blank[edges >= self.epsilon] = 0.0
        above[edges <= -self.epsilon] = above_blank[edges <= -self.epsilon] = 1.0
        return edges, -np.diff(above), -np.diff(above_blank), 0.0


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

        With weight w = exp(-epsilon / SCORE_GRID) per grid step, outputs below m + 1 have
        losses above x for m = ceil((SCORE_GRID - x * SCORE_GRID / epsilon) / 2) - 1.
        """
        step = self.epsilon / SCORE_GRID
        last = np.ceil((SCORE_GRID - losses / step) / 2) - 1
        last = np.clip(last, 0, SCORE_GRID - 1)
        beyond = 1 / (1 + math.exp(-step))
        with_record = 1 - np.exp(-step * (last + 1)) * beyond
        without = np.exp(-step * (SCORE_GRID - last)) * beyond
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
        # of its atom at +epsilon is 1 / (1 + w) <= (1 + epsilon / SCORE_GRID) / 2.
        grow = np.log(ORDERS / (2 * ORDERS - 1)) + self.epsilon * (ORDERS - 1)
        fall = np.log((ORDERS - 1) / (2 * ORDERS - 1)) - self.epsilon * ORDERS
        moments = np.logaddexp(grow, fall) + self.epsilon / SCORE_GRID
        return np.asarray(np.minimum(moments / (ORDERS - 1), self.epsilon))

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """Their continuous Laplace noise."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_laplace_mechanism(1 / self.epsilon, value_discretization_interval=width)

    def dp_event(self) -> DpEvent:
        """The same."""
        from dp_accounting import dp_event

        return dp_event.LaplaceDpEvent(1 / self.epsilon)
