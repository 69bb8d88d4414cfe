"""Poisson batches with one rate per cohort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.mechanisms.inclusion import include
from dpal.planning.campaign_plan import TrainingPhase
from dpal.randomness import BitSource

_NOBODY = np.empty(0, dtype=np.intp)  # a process may own no labeled record at all


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
    def of_part(
        cls,
        part: TrainingPhase,
        phase: int,
        cohorts: NDArray[np.int16],
        participation: NDArray[np.float64] | None = None,
    ) -> PoissonBatches:
        """Batches of one part of a phase over the labeled records.

        Args:
          part: rates and steps.
          phase: number of the phase; its cohort is the new one.
          cohorts: (n,) cohort of each labeled record.
          participation: (n,) factor on each record's rate; None is 1 for all.
        """
        factors = np.ones(cohorts.size) if participation is None else participation
        new = cohorts == phase
        groups = tuple(
            (np.flatnonzero(cohort & (factors == factor)), rate * float(factor))
            for cohort, rate in ((~new, part.sample_rate_old), (new, part.sample_rate_new))
            for factor in np.unique(factors)
        )
        return cls(groups=groups, steps=part.steps)

    def draw(self, *, rng: BitSource) -> Iterator[NDArray[np.intp]]:
        """Yields the row numbers of each batch."""
        for _ in range(self.steps):
            drawn = [rows[include(rows.size, rate, rng=rng)] for rows, rate in self.groups]
            yield np.concatenate([_NOBODY, *drawn])
