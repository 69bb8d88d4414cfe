"""Which side of noisy yes-or-no votes was ahead; nothing else about them is released."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy

from dpal import check
from dpal.accounting.events.event import Event
from dpal.accounting.rdp import ORDERS, Curve
from dpal.accounting.single_step_curves import Gaussian, MechanismStep
from dpal.accounting.votes.majority import Answers, worst_divergence
from dpal.accounting.votes.noisy_threshold_check import counts_multiplier, require_check
from dpal.privacy import Adjacency

MOST_TEACHERS = 10_000  # whose answers are charged by exact tables


@dataclass(frozen=True, kw_only=True)
class MajorityVotes(Event):
    """Which side of noisy yes-or-no votes was ahead; nothing else about them is released.

    Charged by what the released answers can tell, which is less than the noisy counts do. A
    record belongs to one teacher, so under both adjacencies one whole ballot changes.

    Attributes:
      answers: released answers that one ballot can change.
      teachers: that vote on each; public.
      sigma: standard deviation of the noise on each of the two counts, in votes: their
        difference has sqrt(2) as much.
      threshold: an answer is given only where the larger count, with noise of its own, is above
        it; None where all are given.
      threshold_sigma: standard deviation of that noise.
    """

    mechanism = "noisy_majorities"
    is_vote = True
    renyi_is_tighter = True
    answers: int
    teachers: int
    sigma: float
    threshold: float | None = None
    threshold_sigma: float | None = None

    def __post_init__(self) -> None:
        check.at_least(1, answers=self.answers)
        check.within(1, MOST_TEACHERS, teachers=self.teachers)
        check.positive(sigma=self.sigma)
        require_check(self.threshold, self.threshold_sigma)

    @property
    def noise_multiplier(self) -> float:
        """Of the counts that all answers are read off, as one Gaussian release."""
        return counts_multiplier(self.answers, self.sigma, self.threshold_sigma)

    @property
    def question(self) -> Answers:
        """The question that is asked again and again."""
        return Answers(self.teachers, self.sigma, self.threshold, self.threshold_sigma)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more, without a threshold and with one."""
        plain = cls(answers=40, teachers=50, sigma=20.0)
        checked = replace(plain, sigma=40.0, threshold=35.0, threshold_sigma=30.0)
        return plain, checked, replace(checked, sigma=80.0, threshold_sigma=60.0)

    def composition(self) -> tuple[MechanismStep, int]:
        """By the counts that the answers are read off; they tell more."""
        return Gaussian(self.noise_multiplier), 1

    def renyi(self, adjacency: Adjacency) -> Curve:
        """By exact tables of what answers tell."""
        return self.answers * worst_divergence(self.question, tuple(ORDERS))

    def second_renyi(self, orders: Curve) -> Curve:
        """Of one answer for the worst votes; no more than the noisy counts'."""
        votes = np.arange(self.teachers + 1)
        margins = (2 * votes - self.teachers) / (2 * self.sigma)
        chances = [scipy.special.erfc(-margins) / 2, scipy.special.erfc(margins) / 2]
        if self.threshold is not None and self.threshold_sigma is not None:
            short = self.threshold - np.maximum(votes, self.teachers - votes)
            given = scipy.special.erfc(short / (math.sqrt(2) * self.threshold_sigma)) / 2
            refused = scipy.special.erfc(-short / (math.sqrt(2) * self.threshold_sigma)) / 2
            chances = [*(given * chance for chance in chances), refused]
        table = np.maximum(np.stack(chances), 1e-300)[:, :, None]
        worst = np.zeros(orders.size)
        for p, q in ((table[:, 1:], table[:, :-1]), (table[:, :-1], table[:, 1:])):
            with np.errstate(over="ignore"):
                moments = (q * (p / q) ** orders).sum(axis=0)
            worst = np.maximum(worst, np.log(moments.max(axis=0)) / (orders - 1))
        counts = orders / (2 * self.answers * self.noise_multiplier**2)
        return self.answers * np.minimum(worst, counts)
