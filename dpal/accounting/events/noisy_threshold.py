"""A threshold on scores, found by comparing noisy counts; and several as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import scipy

from dpal import check
from dpal.accounting.events.event import Cells, Event
from dpal.accounting.single_step_curves import Gaussian, Losses, MechanismStep
from dpal.canonical import written_as


@dataclass(frozen=True, kw_only=True)
class NoisyThreshold(Event):
    """A score threshold found by comparing noisy counts of the records above it.

    Every count has sensitivity 1 under both adjacencies, and Gaussian noise.

    Attributes:
      noise_multiplier: of all its counts together: 1 / sqrt(sum of their 1 / std^2).
      failure_probability: bound on the chance that more records pass the threshold than may be
        labeled, given that the label budget is then enforced by leaving some out. That
        choice is not private, so this chance counts as delta.
    """

    mechanism = "noisy_threshold"
    noise_multiplier: float
    failure_probability: float = field(default=0.0, metadata=written_as("overflow"))

    def __post_init__(self) -> None:
        check.positive(noise_multiplier=self.noise_multiplier)
        check.within(0, 1, failure_probability=self.failure_probability)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more, and none that fails."""
        return (
            cls(noise_multiplier=2.0, failure_probability=1e-9),
            cls(noise_multiplier=10.0, failure_probability=1e-10),
            cls(noise_multiplier=10.0),
        )

    def composition(self) -> tuple[MechanismStep, int]:
        """Gaussian noise that may fail."""
        return Gaussian(self.noise_multiplier, self.failure_probability), 1

    @property
    def delta(self) -> float:
        """The chance that it fails."""
        return self.failure_probability

    def loss_cells(self, spacing: float) -> Cells:
        """Of Gaussian noise."""
        sigma = self.noise_multiplier
        middle, far = 0.5 / sigma**2, 9 / sigma
        low, high = (math.floor((middle - far) / spacing), math.ceil((middle + far) / spacing))
        edges = spacing * np.arange(low, high + 1, dtype=np.float64)
        tail: Losses = scipy.special.ndtr((middle - edges) * sigma)
        tail_blank: Losses = scipy.special.ndtr((-middle - edges) * sigma)
        beyond = float(tail[-1]) + self.failure_probability
        tail[0] = tail_blank[0] = 1.0
        return edges, -np.diff(tail), -np.diff(tail_blank), beyond


def merge_equal_steps(events: Sequence[Event]) -> list[Event]:
    """The same events, those with Gaussian losses as one: exact, and quicker on a grid."""
    noises = [event.gaussian_noise for event in events]
    told = [(event, noise) for event, noise in zip(events, noises, strict=True) if noise]
    others = [event for event, noise in zip(events, noises, strict=True) if not noise]
    if not told:
        return others
    noise_multiplier = 1 / math.sqrt(sum(noise**-2 for _, noise in told))
    failure = sum(event.delta for event, _ in told)
    threshold = NoisyThreshold(noise_multiplier=noise_multiplier, failure_probability=failure)
    return [threshold, *others]
