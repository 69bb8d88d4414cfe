"""Noisy figures: histograms of records from which a model's figures are computed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

from dpal import check
from dpal.accounting.events.event import Event
from dpal.accounting.single_step_curves import Gaussian, MechanismStep
from dpal.canonical import written_as


@dataclass(frozen=True, kw_only=True)
class NoisyFigures(Event):
    """Counts of records with Gaussian noise on each, rounded to whole numbers.

    Attributes:
      noise_multiplier: noise standard deviation of a count over what one record can change in all
        of them together (Euclidean norm, under the adjacency of the promise); or one group, where
        groups are the unit.
      counts_moved: counts that one record can move, each by one; the square of what it can change
        where it moves some by more, or by less (`MeasuredCounts.squared_sensitivity`). One, where
        every record is in one count and the other world has it blank; two, where it goes elsewhere
        there.
    """

    mechanism = "noisy_figures"
    noise_multiplier: float
    counts_moved: int = field(default=1, metadata=written_as("moved"))

    def __post_init__(self) -> None:
        check.positive(noise_multiplier=self.noise_multiplier)
        check.at_least(1, counts_moved=self.counts_moved)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more."""
        return cls(noise_multiplier=1.5, counts_moved=2), cls(noise_multiplier=9.0)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on one count."""
        return self.noise_multiplier * math.sqrt(self.counts_moved)

    def composition(self) -> tuple[MechanismStep, int]:
        """The multiplier is over the sensitivity under the promised adjacency."""
        return Gaussian(self.noise_multiplier), 1
