"""Noisy scores: with discrete Laplace noise, whose privacy loss is bounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from dpal import check
from dpal.accounting.events.discrete_laplace import PURE_EPSILONS, Laplace
from dpal.accounting.events.event import Cells, Event
from dpal.accounting.single_step_curves import MechanismStep


@dataclass(frozen=True, kw_only=True)
class NoisyScores(Event):
    """One noisy score per unlabeled record, with Laplace noise of scale range / epsilon.

    The noise is discrete, on a grid of `LAPLACE_GRID` steps over the range.

    Attributes:
      epsilon: pure loss of one record's score; the score range bounds its sensitivity
        under both adjacencies.
    """

    mechanism = "laplace"
    epsilon: float

    def __post_init__(self) -> None:
        check.within(*PURE_EPSILONS, epsilon=self.epsilon)

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
