"""Noisy second moments, for a private PCA.

Source: Dwork, Talwar, Thakurta & Zhang (2014), "Analyze Gauss".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from dpal import check
from dpal.accounting.events.event import Event
from dpal.accounting.single_step_curves import Gaussian, MechanismStep


@dataclass(frozen=True, kw_only=True)
class NoisyMoments(Event):
    """The noisy second-moment matrix of clipped vectors; a private PCA is computed from it.

    Attributes:
      noise_multiplier: noise standard deviation of the matrix, as a vector of its isometric
        coordinates, over what one record can change in it (Frobenius norm, under the
        adjacency of the promise).
    """

    mechanism = "noisy_moments"
    noise_multiplier: float

    def __post_init__(self) -> None:
        check.positive(noise_multiplier=self.noise_multiplier)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more."""
        return cls(noise_multiplier=1.5), cls(noise_multiplier=9.0)

    def composition(self) -> tuple[MechanismStep, int]:
        """The multiplier is over the sensitivity under the promised adjacency."""
        return Gaussian(self.noise_multiplier), 1
