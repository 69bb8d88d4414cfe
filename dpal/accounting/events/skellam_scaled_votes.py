"""Votes of sites whose ballots are scaled down to a norm, in whole parts of a vote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy

from dpal import check
from dpal.accounting.events.cost_bounded_votes import LEAST_DELTA, ApproximateDpStep
from dpal.accounting.events.event import Event
from dpal.accounting.events.skellam_votes import LEAST_SIGMA
from dpal.accounting.rdp import ORDERS, Curve, to_epsilon
from dpal.accounting.single_step_curves import Losses, MechanismStep
from dpal.accounting.votes.scaled_ballots import (
    MOST_SCALED_SIGMA,
    moved_answers,
    moved_counts,
    worst_change,
)
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

MOST_PARTS = 64  # of a vote

_LEAST_CHANCE = 1e-290  # of the second opinion's plain sums


@dataclass(frozen=True, kw_only=True)
class SkellamScaledCounts(Event):
    """Noisy sums of sites' scaled ballots, and whatever is read off them.

    A record belongs to one site, so under both adjacencies one whole ballot changes. Its loss is
    the dearest change that a ballot can make (`dpal.accounting.votes.scaled_ballots`): known by its
    divergences at every order, and as a loss distribution only by what these prove.

    Attributes:
      queries: on which sites vote.
      entries: parts that a positive counts in ballots of 1, 2, ..., all positives.
      parts: of a vote.
      sigma: as in `SkellamCounts`, in votes.
    """

    mechanism = "skellam_scaled_counts"
    is_vote = True
    renyi_is_tighter = True
    queries: int
    entries: tuple[int, ...]
    parts: int
    sigma: float

    def __post_init__(self) -> None:
        check.at_least(1, queries=self.queries)
        check.within(1, MOST_PARTS, parts=self.parts)
        check.within(LEAST_SIGMA, MOST_SCALED_SIGMA, sigma=self.sigma)
        object.__setattr__(self, "entries", tuple(self.entries))  # a record has a list
        if not self.entries or not all(
            type(entry) is int and 0 <= entry <= self.parts for entry in self.entries
        ):
            raise ParameterError(f"entries are whole numbers from 0 to {self.parts}, one a label")

    @property
    def variance(self) -> float:
        """Of the noise on each count, in parts."""
        return (self.parts * self.sigma) ** 2 / 2

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From less noise to more, then fewer queries."""
        entries = (16, 16, 11, 9)
        return (
            cls(queries=10, entries=entries, parts=16, sigma=9.0),
            cls(queries=10, entries=entries, parts=16, sigma=18.0),
            cls(queries=2, entries=entries, parts=16, sigma=18.0),
        )

    def composition(self) -> tuple[MechanismStep, int]:
        """The (epsilon, delta) claim that its divergences prove: loose, for accountants without."""
        proven = to_epsilon(self.renyi(Adjacency.ZERO_OUT), delta=LEAST_DELTA)
        return ApproximateDpStep(proven, LEAST_DELTA), 1

    def renyi(self, adjacency: Adjacency) -> Curve:
        """Exact, rounded up."""
        moves = moved_counts(self.variance, max(self.entries), tuple(ORDERS))
        return self.queries * worst_change(self.entries, moves)

    def record(self) -> dict[str, Any]:
        """With a list, as it is read again."""
        return {**super().record(), "entries": list(self.entries)}

    def second_renyi(self, orders: Curve) -> Curve:
        """By plain sums; infinite where these end too early."""
        return self.queries * worst_change(
            self.entries, _plain_moves(self.variance, max(self.entries), orders)
        )


@dataclass(frozen=True, kw_only=True)
class SkellamScaledMajorities(SkellamScaledCounts):
    """Which side of sites' noisy scaled votes was ahead; nothing else about them is released."""

    mechanism = "skellam_scaled_majorities"

    def renyi(self, adjacency: Adjacency) -> Curve:
        """By exact tables of what answers tell."""
        moves = moved_answers(self.variance, max(self.entries), tuple(ORDERS))
        return self.queries * worst_change(self.entries, moves)

    def second_renyi(self, orders: Curve) -> Curve:
        """Of one answer for the worst count, by plain sums; no more than the noisy count's."""
        masses, most = _plain_masses(self.variance), max(self.entries)
        moves = np.zeros((most + 1, len(orders)))
        with np.errstate(divide="ignore"):
            yes, no = np.log(np.cumsum(masses[::-1])[::-1]), np.log(np.cumsum(masses))
        for moved in range(1, most + 1):
            table = np.stack([yes[1:], no[:-1]])  # at least k, and less than k
            here, there = table[:, moved:], table[:, :-moved]
            for place, order in enumerate(orders):
                both = [_log_moment(*pair, order) for pair in ((here, there), (there, here))]
                moves[moved, place] = max(0.0, *both) / (order - 1)
        counts = super().second_renyi(orders)
        return np.asarray(np.minimum(self.queries * worst_change(self.entries, moves), counts))


def _plain_masses(variance: float) -> Losses:
    """Chances of all whole numbers that are not negligible, by SciPy's Bessel function."""
    reach = 40 + int(40 * np.sqrt(variance))
    masses = scipy.special.ive(np.abs(np.arange(-reach, reach + 1)), variance)
    return np.asarray(masses[masses > _LEAST_CHANCE])


def _plain_moves(variance: float, most: int, orders: Curve) -> Losses:
    """(most + 1, o) divergences of noise that moved; infinite where most of it is off the table."""
    masses = np.log(_plain_masses(variance))
    found, margin = np.zeros((most + 1, len(orders))), 10 * np.sqrt(variance)
    for moved in range(1, most + 1):
        for place, order in enumerate(orders):
            terms = order * masses[:-moved] + (1 - order) * masses[moved:]
            ends = terms.argmax() > len(terms) - margin
            divergence = scipy.special.logsumexp(terms) / (order - 1)
            found[moved, place] = np.inf if ends else max(0.0, divergence)
    return found


def _log_moment(mine: Losses, other: Losses, order: float) -> float:
    """The largest over columns of two chances' logarithms."""
    return float(np.logaddexp(*(order * mine + (1 - order) * other)).max())
