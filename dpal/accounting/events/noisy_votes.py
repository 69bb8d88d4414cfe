"""Noisy counts of teachers' votes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from dpal import check
from dpal.accounting.events.event import Event
from dpal.accounting.rdp import Curve
from dpal.accounting.single_step_curves import DpEvent, Gaussian, MechanismStep


@dataclass(frozen=True, kw_only=True)
class NoisyVotes(Event):
    """Counts of teachers' votes with Gaussian noise, and whatever is read off them.

    A record belongs to one teacher, so under both adjacencies one whole ballot changes.

    Attributes:
      queries: so often the teachers vote.
      squared_sensitivity: square of what one ballot moves in the counts of one query
        (Euclidean norm, in votes).
      sigma: standard deviation of the noise on every count, in votes.
    """

    mechanism = "noisy_votes"
    is_vote = True
    queries: int
    squared_sensitivity: float
    sigma: float

    def __post_init__(self) -> None:
        check.at_least(1, queries=self.queries)
        check.positive(squared_sensitivity=self.squared_sensitivity, sigma=self.sigma)

    @property
    def noise_multiplier(self) -> float:
        """Of all queries as one Gaussian release."""
        return self.sigma / math.sqrt(self.queries * self.squared_sensitivity)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more, then fewer queries."""
        return (
            cls(queries=20, squared_sensitivity=2.0, sigma=20.0),
            cls(queries=20, squared_sensitivity=2.0, sigma=40.0),
            cls(queries=5, squared_sensitivity=2.0, sigma=40.0),
        )

    def composition(self) -> tuple[MechanismStep, int]:
        """All queries as one release."""
        return Gaussian(self.noise_multiplier), 1

    def second_renyi(self, orders: Curve) -> Curve:
        """Of one Gaussian."""
        return orders / (2 * self.noise_multiplier**2)

    def dp_event(self) -> DpEvent:
        """Query by query."""
        from dp_accounting import dp_event

        once = dp_event.GaussianDpEvent(self.sigma / math.sqrt(self.squared_sensitivity))
        return dp_event.SelfComposedDpEvent(once, self.queries)
