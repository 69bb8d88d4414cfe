"""Noisy counts: a histogram of votes of records, with discrete Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from dpal import check
from dpal.accounting.events.discrete_laplace import PURE_EPSILONS, Laplace
from dpal.accounting.events.event import Event
from dpal.accounting.single_step_curves import MechanismStep, PrivacyLossDistribution
from dpal.canonical import written_as
from dpal.privacy import Adjacency


@dataclass(frozen=True, kw_only=True)
class NoisyCounts(Event):
    """A histogram to which every record gives at most one vote, with Laplace noise.

    The noise is discrete, on a grid of `LAPLACE_GRID` steps to a vote.

    Attributes:
      epsilon: pure loss of one count that moves by one.
      l0_sensitivity: counts that one record can move, each by one. One, where every record
        decides by itself whether to vote and the other world has it blank; two, where its vote
        goes elsewhere there, or where another one votes in its place.
    """

    mechanism = "noisy_counts"
    epsilon: float
    l0_sensitivity: int = field(default=1, metadata=written_as("moved"))

    def __post_init__(self) -> None:
        check.within(*PURE_EPSILONS, epsilon=self.epsilon)
        check.within(1, 2, l0_sensitivity=self.l0_sensitivity)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more, and fewer counts."""
        return cls(epsilon=0.5, l0_sensitivity=2), cls(epsilon=0.5), cls(epsilon=0.1)

    def composition(self) -> tuple[MechanismStep, int]:
        """On the grid of the scores; counts that one record moves have independent noise."""
        return Laplace(self.epsilon), self.l0_sensitivity

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """Composed as theirs are, also where it is one count."""
        once = Laplace(self.epsilon).second_opinion(adjacency, width)
        return once.self_compose(self.l0_sensitivity)

    @property
    def pure_epsilon(self) -> float:
        """Of all counts that a record moves."""
        return self.l0_sensitivity * self.epsilon
