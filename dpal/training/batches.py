"""Poisson batches with one rate per cohort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.mechanisms.inclusion import include
from dpal.planning.plan import Phase
from dpal.randomness import BitSource


@dataclass(frozen=True, kw_only=True)
class PoissonBatches:
    """Exactly `steps` batches; every record joins each by a coin of its own.

    Attributes:
      groups: row numbers of the records that share a rate, and the rate.
      steps: number of batches; an empty batch counts and is yielded.
    """

    groups: tuple[tuple[NDArray[np.intp], float], ...]
    steps: int

    @classmethod
    def of_phase(cls, phase: Phase, cohorts: NDArray[np.int16]) -> PoissonBatches:
        """Batches of one phase over the labeled records.

        Args:
          phase: rates and steps.
          cohorts: (n,) cohort of each labeled record.
        """
        new = cohorts == phase.index
        groups = (
            (np.flatnonzero(~new), phase.training.sample_rate_old),
            (np.flatnonzero(new), phase.training.sample_rate_new),
        )
        return cls(groups=groups, steps=phase.training.steps)

    def draw(self, *, rng: BitSource) -> Iterator[NDArray[np.intp]]:
        """Yields the row numbers of each batch."""
        for _ in range(self.steps):
            drawn = [rows[include(rows.size, rate, rng=rng)] for rows, rate in self.groups]
            yield np.concatenate(drawn)
