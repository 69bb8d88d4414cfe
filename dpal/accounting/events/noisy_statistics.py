"""Noisy sufficient statistics of a linear head: one sum over a cohort, released once.

Source: Gaussian noise on both moments together, as in Wang (2018), "Revisiting differentially
private linear regression", and, of fixed features, Mehta et al. (2023), "Differentially
private image classification from features".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from dpal import check
from dpal.accounting.events.event import Event
from dpal.accounting.single_step_curves import Gaussian, MechanismStep


@dataclass(frozen=True, kw_only=True)
class NoisyStatistics(Event):
    """The noisy sum of what every record of a cohort adds to a head's statistics.

    All records take part, so that no chance of joining makes it cheaper, and no block of a data
    set takes part less than another.

    Attributes:
      noise_multiplier: noise standard deviation of each coordinate over what one record can
        change in all of them together (Euclidean, under the adjacency of the promise).
    """

    mechanism = "noisy_statistics"
    noise_multiplier: float

    def __post_init__(self) -> None:
        check.positive(noise_multiplier=self.noise_multiplier)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more."""
        return cls(noise_multiplier=1.2), cls(noise_multiplier=6.0)

    def composition(self) -> tuple[MechanismStep, int]:
        """The multiplier is over the sensitivity under the promised adjacency."""
        return Gaussian(self.noise_multiplier), 1

    @property
    def training_steps(self) -> int:
        """A fit is one step."""
        return 1
