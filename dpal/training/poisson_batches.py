"""Poisson batches with one rate per cohort: of records, or of groups and some records of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.errors import ParameterError
from dpal.mechanisms.poisson_sampling import include
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
        return cls(groups=_by_rate(part, phase, cohorts, participation), steps=part.steps)

    def draw(self, *, rng: BitSource) -> Iterator[NDArray[np.intp]]:
        """Yields the row numbers of each batch."""
        for _ in range(self.steps):
            drawn = [rows[include(rows.size, rate, rng=rng)] for rows, rate in self.groups]
            yield np.concatenate([_NOBODY, *drawn])


@dataclass(frozen=True, kw_only=True)
class GroupBatches:
    """Exactly `steps` batches; every group joins each by one coin, with some of its records.

    Attributes:
      groups: numbers of the groups that share a rate, and the rate.
      members: rows of each group.
      most: records of a group in a batch; of more, so many are drawn by chance.
      steps: number of batches; an empty batch counts and is yielded.
    """

    groups: tuple[tuple[NDArray[np.intp], float], ...]
    members: tuple[NDArray[np.intp], ...]
    most: int
    steps: int

    @classmethod
    def of_part(
        cls,
        part: TrainingPhase,
        phase: int,
        cohorts: NDArray[np.int16],
        owners: NDArray[np.int64],
        *,
        most: int,
        participation: NDArray[np.float64] | None = None,
    ) -> GroupBatches:
        """Batches of one part of a phase over the labeled records.

        Args:
          part: rates, of groups, and steps.
          phase: number of the phase; its cohort is the new one.
          cohorts: (n,) cohort of each labeled record.
          owners: (n,) group of each labeled record.
          most: records of a group in a batch.
          participation: as in `PoissonBatches.of_part`.

        Raises:
          ParameterError: records of one group are in two cohorts, or take part differently: a
            group would have two histories.
        """
        check.at_least(1, most=most)
        firsts, first_rows, numbers = _first_rows(owners)
        factors = np.ones(cohorts.size) if participation is None else participation
        for of_record in (cohorts, factors):
            if (of_record != of_record[first_rows][numbers]).any():
                raise ParameterError("records of one group have different histories")
        order = np.argsort(numbers, kind="stable")
        starts = np.cumsum(np.bincount(numbers, minlength=firsts.size))[:-1]
        return cls(
            groups=_by_rate(part, phase, cohorts[first_rows], factors[first_rows]),
            members=tuple(np.split(order, starts)) if firsts.size else (),
            most=most,
            steps=part.steps,
        )

    def draw(self, *, rng: BitSource) -> Iterator[NDArray[np.intp]]:
        """Yields the row numbers of each batch, group by group, the smallest groups first."""
        for _ in range(self.steps):
            drawn = [groups[include(groups.size, rate, rng=rng)] for groups, rate in self.groups]
            yield self._records(np.concatenate([_NOBODY, *drawn]), rng)

    def _records(self, groups: NDArray[np.intp], rng: BitSource) -> NDArray[np.intp]:
        """Rows of all records of these groups, or `most` of a larger one by chance.

        Chance reads no record, and a group contributes at most C whichever are drawn.
        """
        sizes = np.array([self.members[group].size for group in groups], dtype=np.intp)
        rows = np.concatenate([_NOBODY, *(self.members[group] for group in groups)])
        if (sizes > self.most).any():
            by_chance = np.lexsort((rng.words(rows.size), np.repeat(np.arange(sizes.size), sizes)))
            rank = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            rows, sizes = rows[by_chance[rank < self.most]], np.minimum(sizes, self.most)
        return rows[np.argsort(np.repeat(sizes, sizes), kind="stable")]


def group_sizes(owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths of the runs of equal owners: sizes of the groups of a batch, in order.

    >>> group_sizes(np.array([7, 2, 2]))
    array([1, 2])
    """
    if not owners.size:
        return np.empty(0, dtype=np.int64)
    changes = np.flatnonzero(np.diff(owners)) + 1
    return np.diff(np.concatenate([[0], changes, [owners.size]])).astype(np.int64)


def _first_rows(
    owners: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.intp], NDArray[np.intp]]:
    """Groups, the first row of each, and the number of each row's group."""
    return np.unique(owners, return_index=True, return_inverse=True)


def _by_rate(
    part: TrainingPhase,
    phase: int,
    cohorts: NDArray[np.int16],
    participation: NDArray[np.float64] | None,
) -> tuple[tuple[NDArray[np.intp], float], ...]:
    """Numbers of those that share a rate, and the rate."""
    factors = np.ones(cohorts.size) if participation is None else participation
    new = cohorts == phase
    return tuple(
        (np.flatnonzero(cohort & (factors == factor)), rate * float(factor))
        for cohort, rate in ((~new, part.sample_rate_old), (new, part.sample_rate_new))
        for factor in np.unique(factors)
    )
