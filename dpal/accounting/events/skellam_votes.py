"""Votes of sites, each of which drew a share of the noise: counts, and answers read off them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy

from dpal import check
from dpal.accounting.events.event import Event
from dpal.accounting.rdp import ORDERS, Curve
from dpal.accounting.single_step_curves import (
    Direction,
    DpEvent,
    Losses,
    MechanismStep,
    PrivacyLossDistribution,
)
from dpal.accounting.votes.skellam import (
    answer_divergence,
    count_divergence,
    skellam_log_masses,
    skellam_log_tails,
)
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

LEAST_SIGMA, MOST_SIGMA = 0.1, 200.0  # between which tables are exact enough, and short enough

_NEGLIGIBLE = -48.0  # log of a chance of 1e-21, as far as Gaussian noise is followed
_LEAST_CHANCE = 1e-290  # of the second opinion's plain sums


@dataclass(frozen=True)
class SkellamStep(MechanismStep):
    """Skellam noise on a count that moves by one, under both adjacencies alike.

    Attributes:
      variance: of the noise.
    """

    variance: float

    def delta(self, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
        """Exact: where the loss is above epsilon is where the noise is above some number."""
        tails = skellam_log_tails(self.variance)
        # Loss of outcome k is log p(k - 1) - log p(k), which rises with k.
        first = np.searchsorted(self._losses, losses, side="right") + 1
        moved = np.exp(tails[first - 1])
        plain = np.exp(losses + np.append(tails, -np.inf)[first])
        return np.asarray(np.clip(moved - plain, 0, 1))

    def reach(self, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
        """Of outcomes that are not negligible."""
        masses = skellam_log_masses(self.variance)
        (kept,) = np.nonzero(np.maximum(masses[1:], masses[:-1]) > _NEGLIGIBLE)
        found = self._losses[kept]
        return float(found[0]), float(found[-1])

    @property
    def spread(self) -> float:
        """As that of Gaussian noise."""
        return 1 / math.sqrt(self.variance)

    def renyi(self, adjacency: Adjacency) -> Curve:
        """Exact, rounded up."""
        return count_divergence(self.variance, tuple(ORDERS))

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """From chances by SciPy's Bessel function, and none of our tables."""
        from dp_accounting.pld import pld_pmf
        from dp_accounting.pld import privacy_loss_distribution as pld

        masses = np.append(_plain_masses(self.variance), 0.0)
        moved, (_, most) = np.roll(masses, 1), self.reach(adjacency, Direction.REMOVE)
        grid = np.arange(-math.ceil(most / width), math.ceil(most / width) + 1)
        deltas = [np.maximum(moved - np.exp(loss) * masses, 0.0).sum() for loss in grid * width]
        return pld.PrivacyLossDistribution(
            pld_pmf.create_pmf_pessimistic_connect_dots(width, grid, np.minimum(deltas, 1.0))
        )

    def dp_event(self) -> DpEvent:
        """None.

        Raises:
          ParameterError: always.
        """
        raise ParameterError("dp-accounting has no event for Skellam noise")

    @property
    def _losses(self) -> Losses:
        masses = skellam_log_masses(self.variance)
        return np.asarray(masses[:-1] - masses[1:])


@dataclass(frozen=True, kw_only=True)
class SkellamCounts(Event):
    """Noisy counts of sites' votes, and whatever is read off them.

    A record belongs to one site, so under both adjacencies one whole ballot changes.

    Attributes:
      answers: counts that one ballot can change.
      sigma: standard deviation of the noise on each of two counts, in votes, that sites drew who
        tell nobody: the count of yes has a variance of sigma**2 / 2.
    """

    mechanism = "skellam_counts"
    is_vote = True
    answers: int
    sigma: float

    def __post_init__(self) -> None:
        check.at_least(1, answers=self.answers)
        check.within(LEAST_SIGMA, MOST_SIGMA, sigma=self.sigma)

    @property
    def variance(self) -> float:
        """Of the noise on the count of yes."""
        return self.sigma**2 / 2

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more, then fewer answers."""
        return (
            cls(answers=40, sigma=9.0),
            cls(answers=40, sigma=18.0),
            cls(answers=10, sigma=18.0),
        )

    def composition(self) -> tuple[MechanismStep, int]:
        """Each count for itself."""
        return SkellamStep(self.variance), self.answers

    def second_renyi(self, orders: Curve) -> Curve:
        """By plain sums."""
        masses = _plain_masses(self.variance)
        return self.answers * _plain_divergence(masses[None, :-1], masses[None, 1:], orders)


@dataclass(frozen=True, kw_only=True)
class SkellamMajorities(SkellamCounts):
    """Which side of sites' noisy votes was ahead; nothing else about them is released.

    Charged by what an answer can tell at the worst count, which is less than the noisy count does.

    Attributes:
      answers: released answers that one ballot can change.
      sigma: as in `SkellamCounts`.
    """

    mechanism = "skellam_majorities"
    renyi_is_tighter = True

    def renyi(self, adjacency: Adjacency) -> Curve:
        """By exact tables of what answers tell."""
        return self.answers * answer_divergence(self.variance, tuple(ORDERS))

    def second_renyi(self, orders: Curve) -> Curve:
        """Of one answer for the worst count, by plain sums; no more than the noisy count's."""
        masses = _plain_masses(self.variance)
        yes, no = np.cumsum(masses[::-1])[::-1], np.cumsum(masses)
        table = np.stack([yes[1:], no[:-1]])  # at least k, and less than k
        here, there = table[:, 1:], table[:, :-1]
        worst = np.maximum(
            _plain_divergence(here.T, there.T, orders), _plain_divergence(there.T, here.T, orders)
        )
        return np.asarray(np.minimum(self.answers * worst, super().second_renyi(orders)))


def _plain_masses(variance: float) -> Losses:
    """Chances of all whole numbers that are not negligible, by SciPy's Bessel function."""
    reach = 40 + int(40 * math.sqrt(variance))
    masses = scipy.special.ive(np.abs(np.arange(-reach, reach + 1)), variance)
    return np.asarray(masses[masses > _LEAST_CHANCE])


def _plain_divergence(mine: Losses, other: Losses, orders: Curve) -> Curve:
    """The largest divergence of any row, (o,); inf where a sum overflows."""
    with np.errstate(over="ignore"):
        moments = [(other * (mine / other) ** order).sum(axis=1).max() for order in orders]
        return np.asarray(np.maximum(np.log(moments), 0.0) / (orders - 1))
