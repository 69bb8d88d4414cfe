"""Randomized response: every record of the pool says whether it wants a label.

dp-accounting has no such event: its randomised response compares with the uniform answer only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from dpal import check
from dpal.accounting.events.event import Answer, Outcome
from dpal.accounting.single_step_curves import Direction
from dpal.errors import ParameterError
from dpal.privacy import Adjacency


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse(Answer):
    """One yes or no per unlabeled record, "label me", anchored at the blank record.

    Yes costs much, no very little.

    Attributes:
      above: chance of yes for a record whose score is above the threshold.
      below: chance of yes for one below.
      blank: chance of yes for a blanked record, between the two.
    """

    mechanism = "anchored_answers"
    above: float
    below: float
    blank: float

    def __post_init__(self) -> None:
        check.inside(0, 1, above=self.above, below=self.below, blank=self.blank)
        if not self.below <= self.blank <= self.above:
            raise ParameterError(
                f"answers need below <= blank <= above, got {self.below:g}, {self.blank:g} and "
                f"{self.above:g}"
            )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From clear answers to noisier ones."""
        return (
            cls(above=0.6, below=0.05, blank=0.15),
            cls(above=0.4, below=0.1, blank=0.15),
            cls(above=0.2, below=0.12, blank=0.15),
        )

    def outcomes(self, adjacency: Adjacency, direction: Direction, *, yes: bool) -> list[Outcome]:
        """For a record on either side of the threshold."""
        sides = (self.above, self.below)
        if adjacency is Adjacency.REPLACE_ONE:
            pairs = [(p, q) for p in sides for q in sides]
        else:
            pairs = [(p, self.blank) for p in sides]
        if direction is Direction.ADD:
            pairs = [(q, p) for p, q in pairs]
        return pairs if yes else [(1 - p, 1 - q) for p, q in pairs]

    def second_outcomes(self, adjacency: Adjacency, *, removing: bool) -> list[Outcome]:
        """Written out once more."""
        rates = (self.above, self.below)
        if adjacency is Adjacency.REPLACE_ONE:
            return [(p, q) for p in rates for q in rates]
        return [(p, self.blank) if removing else (self.blank, p) for p in rates]
