"""Which class was ahead in noisy pluralities; nothing else about the votes is released."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dpal import check
from dpal.accounting.events.event import Event
from dpal.accounting.rdp import ORDERS, Curve
from dpal.accounting.single_step_curves import Gaussian, MechanismStep
from dpal.accounting.votes.noisy_threshold_check import counts_multiplier, require_check
from dpal.accounting.votes.recheck_worst_winner import second_winner
from dpal.accounting.votes.worst_winner import MOST_PLURALITY_TEACHERS, Winners, worst_winner
from dpal.privacy import Adjacency


@dataclass(frozen=True, kw_only=True)
class PluralityVotes(Event):
    """Which class was ahead in noisy pluralities; nothing else about the votes is released.

    Charged by what the released answers can tell, which is less than the noisy counts do. A
    record belongs to one teacher, so under both adjacencies one whole ballot changes.

    Attributes:
      queries: so often the teachers vote, whether or not an answer is given.
      teachers: that vote; public.
      classes: that a ballot can name, also those that none does.
      sigma: standard deviation of the noise on every count, in votes.
      threshold: an answer is given only where the largest count, with noise of its own, is above
        it; None where all are given.
      threshold_sigma: standard deviation of that noise.
    """

    mechanism = "noisy_pluralities"
    is_vote = True
    renyi_is_tighter = True
    queries: int
    teachers: int
    classes: int
    sigma: float
    threshold: float | None = None
    threshold_sigma: float | None = None

    def __post_init__(self) -> None:
        check.at_least(1, queries=self.queries)
        check.within(1, MOST_PLURALITY_TEACHERS, teachers=self.teachers)
        check.at_least(3, classes=self.classes)
        check.positive(sigma=self.sigma)
        require_check(self.threshold, self.threshold_sigma)

    @property
    def noise_multiplier(self) -> float:
        """Of the counts that all answers are read off, as one Gaussian release."""
        return counts_multiplier(self.queries, self.sigma, self.threshold_sigma)

    @property
    def question(self) -> Winners:
        """The question that is asked again and again."""
        return Winners(
            self.teachers, self.classes, self.sigma, self.threshold, self.threshold_sigma
        )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more, without a threshold and with one."""
        plain = cls(queries=40, teachers=50, classes=10, sigma=20.0)
        checked = replace(plain, sigma=40.0, threshold=35.0, threshold_sigma=30.0)
        return plain, checked, replace(checked, sigma=80.0, threshold_sigma=60.0)

    def composition(self) -> tuple[MechanismStep, int]:
        """By the counts that the answers are read off; they tell more."""
        return Gaussian(self.noise_multiplier), 1

    def renyi(self, adjacency: Adjacency) -> Curve:
        """By the worst votes, of what answers tell."""
        return self.queries * worst_winner(self.question, tuple(ORDERS))

    def second_renyi(self, orders: Curve) -> Curve:
        """The same bound by plain sums."""
        once = second_winner(
            teachers=self.teachers,
            classes=self.classes,
            sigma=self.sigma,
            threshold=self.threshold,
            threshold_sigma=self.threshold_sigma,
            orders=np.asarray(orders, dtype=np.float64),
        )
        return self.queries * once
