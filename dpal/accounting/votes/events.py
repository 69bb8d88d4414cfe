"""Releases of an ensemble of teachers, as values; see `dpal.accounting.events`.

A record belongs to one teacher, so under both adjacencies one whole ballot changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpal import check
from dpal.errors import ParameterError

MOST_TEACHERS = 10_000  # whose answers are charged by exact tables
LEAST_DELTA = 1e-15  # at which a divergence at one order becomes a loss distribution


@dataclass(frozen=True, kw_only=True)
class NoisyVotes:
    """Counts of teachers' votes with Gaussian noise, and whatever is read off them.

    A record belongs to one teacher, so under both adjacencies one whole ballot changes.

    Attributes:
      queries: so often the teachers vote.
      squared_sensitivity: square of what one ballot moves in the counts of one query
        (Euclidean norm, in votes).
      sigma: standard deviation of the noise on every count, in votes.
    """

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


@dataclass(frozen=True, kw_only=True)
class NoisyMajorities:
    """Which side of noisy yes-or-no votes was ahead; nothing else about them is released.

    Charged by what the released answers can tell, which is less than the noisy counts do.

    Attributes:
      answers: released answers that one ballot can change.
      teachers: that vote on each; public.
      sigma: standard deviation of the noise on each of the two counts, in votes: their
        difference has sqrt(2) as much.
      threshold: an answer is given only where the larger count, with noise of its own, is above
        it; None where all are given.
      threshold_sigma: standard deviation of that noise.
    """

    answers: int
    teachers: int
    sigma: float
    threshold: float | None = None
    threshold_sigma: float | None = None

    def __post_init__(self) -> None:
        check.at_least(1, answers=self.answers)
        check.within(1, MOST_TEACHERS, teachers=self.teachers)
        check.positive(sigma=self.sigma)
        if (self.threshold is None) != (self.threshold_sigma is None):
            raise ParameterError("a threshold and its threshold_sigma belong together")
        if self.threshold is not None and self.threshold_sigma is not None:
            check.at_least(0, threshold=self.threshold)
            check.positive(threshold_sigma=self.threshold_sigma)

    @property
    def noise_multiplier(self) -> float:
        """Of the counts that all answers are read off, as one Gaussian release."""
        checked = 0.0 if self.threshold_sigma is None else self.threshold_sigma**-2
        return 1 / math.sqrt(self.answers * (2 / self.sigma**2 + checked))


@dataclass(frozen=True, kw_only=True)
class VotesWithin:
    """Votes whose own cost was told first, with noise, and that left only if it was within a limit.

    What the votes that were cast cost is private; an upper bound of it is released with noise
    in proportion to its smooth sensitivity, and the answers only where that is within a limit
    set beforehand. On votes that cost more they leave with chance `failure` at most.

    Attributes:
      order: Rényi order, chosen without the votes, as everything here.
      divergence: the price of the bound plus the limit, at that order.
      failure: chance that the bound is below what it bounds; counts as delta.
    """

    order: float
    divergence: float
    failure: float

    def __post_init__(self) -> None:
        check.at_least(1.1, order=self.order)
        check.positive(divergence=self.divergence)
        check.within(0, 1, failure=self.failure)

    @property
    def pure(self) -> float:
        """Epsilon of the divergence at `LEAST_DELTA`: loose, for accountants without orders."""
        slack = math.log1p(-1 / self.order)
        slack -= (math.log(LEAST_DELTA) + math.log(self.order)) / (self.order - 1)
        return self.divergence + slack
