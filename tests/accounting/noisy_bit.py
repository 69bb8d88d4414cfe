"""An event that dpal does not have, in one file: a bit of every record, told with noise.

Source: Warner (1965), randomized response; dp-accounting has it, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpal import check
from dpal.accounting.events import Event
from dpal.accounting.rdp import ORDERS, Curve
from dpal.accounting.single_step_curves import (
    Direction,
    DpEvent,
    Losses,
    MechanismStep,
    PrivacyLossDistribution,
)
from dpal.privacy import Adjacency


@dataclass(frozen=True, kw_only=True)
class NoisyBit(Event):
    """One bit per record, which is flipped by chance.

    Attributes:
      flipped: chance of that, below a half.
      bits: that every record tells, each with noise of its own.
    """

    mechanism = "noisy_bit"
    flipped: float
    bits: int = 1

    def __post_init__(self) -> None:
        check.inside(0, 0.5, flipped=self.flipped)
        check.at_least(1, bits=self.bits)

    @classmethod
    def examples(cls) -> tuple[NoisyBit, ...]:
        """From less noise to more."""
        return cls(flipped=0.3, bits=2), cls(flipped=0.3), cls(flipped=0.45)

    def composition(self) -> tuple[MechanismStep, int]:
        """Bit by bit."""
        return Flip(self.flipped), self.bits

    @property
    def pure_epsilon(self) -> float:
        """Of all bits."""
        return self.bits * Flip(self.flipped).spread


@dataclass(frozen=True)
class Flip(MechanismStep):
    """One bit: a loss of +-ln((1 - flipped) / flipped)."""

    flipped: float

    def delta(self, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
        """Over both outputs."""
        p = np.array([self.flipped, 1 - self.flipped])
        return np.maximum(0, p[:, None] - p[::-1, None] * np.exp(losses)).sum(axis=0)

    def reach(self, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
        """Both losses."""
        return -self.spread, self.spread

    @property
    def spread(self) -> float:
        """The larger loss."""
        return math.log1p(-self.flipped) - math.log(self.flipped)

    def renyi(self, adjacency: Adjacency) -> Curve:
        """Over both outputs."""
        yes, no = math.log1p(-self.flipped), math.log(self.flipped)
        moments = np.logaddexp(ORDERS * yes + (1 - ORDERS) * no, ORDERS * no + (1 - ORDERS) * yes)
        return np.asarray(moments / (ORDERS - 1))

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """Their randomized response: a uniform bit with twice the chance."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_randomized_response(
            2 * self.flipped, 2, value_discretization_interval=width
        )

    def dp_event(self) -> DpEvent:
        """The same."""
        from dp_accounting import dp_event

        return dp_event.RandomizedResponseDpEvent(2 * self.flipped, 2)
