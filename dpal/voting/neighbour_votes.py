"""Nearby private records vote, each on so many queries at most: budgets of single records.

Every private record that lies within a public distance of a query, in a *public* embedding, votes
for its class. The counts get Gaussian noise, and the class in front is released, or none where it
has too few noisy votes. A record that has voted as often as it may is silent from then on. So a
record pays for the queries that it answers, and not for those that others do: how many queries are
asked is not limited, and they may be chosen in view of earlier answers.

What a record does depends on itself, on the queries and on how often it has voted: if another one
is blanked, it votes as before. So of two neighbouring worlds the counts differ by the votes of one
record, at most `votes` times by one vote; or, where it is replaced, by those of both. Gaussian
noise on differences whose squares add up to at most a limit, however they are chosen on the way, is
one Gaussian release of that limit: the proof is in docs/voting.md.

Source: individual filters, Feldman & Zrnic (2021); of neighbours Zhu et al. (2023), "Private
prediction strikes back", whose weights and noisy degrees are left out; Gaussian noise, Smith &
Thakurta (2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import VOTING, Charge, NoisyVotes, Release
from dpal.accounting.safe_search import smallest_safe
from dpal.accounting.votes.near_records import near_votes_event
from dpal.errors import ParameterError
from dpal.mechanisms.gaussian import on_grid
from dpal.privacy import Adjacency, PrivacyTarget
from dpal.randomness import BitSource
from dpal.voting.draw_answers import UNANSWERED, Released

Floats = NDArray[np.float64]

_MOST_AT_ONCE = 1 << 24  # distances in memory


@dataclass(frozen=True, kw_only=True)
class NeighbourVotes:
    """How private records near to a query vote; public.

    Attributes:
      classes: of the records.
      votes: most queries on which one record votes.
      sigma: standard deviation of the noise on every count, in votes.
      bar: noisy votes that the class in front must have for a query to be answered.
    """

    classes: int
    votes: int
    sigma: float
    bar: float = 0.0

    def __post_init__(self) -> None:
        check.at_least(2, classes=self.classes)
        check.positive(sigma=self.sigma)
        check.at_least(1, votes=self.votes)
        check.at_least(0, bar=self.bar)

    def event(self, adjacency: Adjacency) -> NoisyVotes:
        """What all queries together are charged as, however many there are."""
        return near_votes_event(self.votes, self.sigma, adjacency)


class VotingRecords:
    """Private records and how often each may still vote, which is kept in memory alone.

    A second one of the same records begins with full budgets: it is another release, and is charged
    as one.
    """

    def __init__(
        self, rule: NeighbourVotes, embeddings: Floats, labels: NDArray[np.integer]
    ) -> None:
        """Begins with full budgets.

        Args:
          rule: how they vote.
          embeddings: (n, d) public embeddings of private records.
          labels: (n,) their classes; a blank record has a negative one and never votes.

        Raises:
          ParameterError: shapes or classes do not belong together.
        """
        sound = embeddings.ndim == 2 and labels.shape == (len(embeddings),)
        if not sound or not (labels < rule.classes).all() or not np.isfinite(embeddings).all():
            raise ParameterError("private records and their classes do not belong together")
        self.rule, self._embeddings, self._labels = rule, embeddings, labels.astype(np.int64)
        self._squares = (embeddings**2).sum(axis=1)
        self._left = np.where(labels >= 0, rule.votes, 0)

    def ask(self, queries: Floats, radii: Floats, *, rng: BitSource) -> Released:
        """Answers queries in order. Whoever publishes any answer has paid `rule.event` first.

        Args:
          queries: (q, d) embeddings of public records; those of a later call may be chosen in view
            of the answers to earlier ones.
          radii: (q,) Euclidean distances within which records vote; public, as of `radii_for`.
          rng: source of the noise.

        Returns:
          Classes, UNANSWERED where none had enough votes.
        """
        return near_answers(self.rule, self.cast(queries, radii), rng=rng)

    def cast(self, queries: Floats, radii: Floats) -> Floats:
        """Votes for each class, (q, classes), which are paid for by who casts them. Private."""
        if radii.shape != (len(queries),) or not (radii >= 0).all():
            raise ParameterError("every query needs a radius from 0")
        if queries.ndim != 2 or queries.shape[1] != self._embeddings.shape[1]:
            raise ParameterError("queries do not belong into the embedding of the private records")
        counts = np.zeros((len(queries), self.rule.classes))
        most = max(1, _MOST_AT_ONCE // max(1, len(self._embeddings)))
        for start in range(0, len(queries), most):
            part = queries[start : start + most]
            # Of all records, blank or silent ones too: the last bits of a product may depend on
            # where a row stands, and so nobody's place depends on anybody else.
            apart = self._squares - 2 * part @ self._embeddings.T + (part**2).sum(1)[:, None]
            near = apart <= radii[start : start + most, None] ** 2
            for row, close in enumerate(near, start=start):
                voting = np.flatnonzero(close & (self._left > 0))
                self._left[voting] -= 1
                counts[row] = np.bincount(self._labels[voting], minlength=self.rule.classes)
        return counts


def near_answers(rule: NeighbourVotes, counts: Floats, *, rng: BitSource) -> Released:
    """Answers by votes that were cast, which are paid for by who casts them.

    Args:
      rule: how they are answered.
      counts: (queries, classes) votes.
      rng: source of the noise.
    """
    noisy, step = on_grid(counts.ravel(), rule.sigma, rng=rng)
    shown = noisy.reshape(counts.shape)
    winners = shown.argmax(axis=1)
    # Noisy counts are what is charged: whatever is read off them costs nothing more.
    winners[shown.max(axis=1, initial=0) * step < rule.bar] = UNANSWERED
    return Released(winners)


def least_noise(votes: int, target: PrivacyTarget) -> float:
    """The least sigma with which records that vote so often keep a promise.

    Raises:
      ParameterError: none does.
    """

    def epsilon(sigma: float) -> float:
        rule = NeighbourVotes(classes=2, votes=votes, sigma=sigma)
        charge = Charge(cohorts=("0",), event=rule.event(target.adjacency))
        return campaign_epsilon(
            [Release(name="votes", kind=VOTING, phase=0, charges=(charge,))], target
        )

    # Beyond that so much is told that losses are no numbers any more.
    return smallest_safe(epsilon, target.epsilon, low=math.sqrt(votes) / 8)


def radii_for(queries: Floats, public: Floats, *, records: int, neighbours: float) -> Floats:
    """Distances within which so many private records may be expected, judged by public ones.

    Args:
      queries: (q, d) embeddings.
      public: (m, d) embeddings of other public records that are like the private ones.
      records: how many private ones there are; public.
      neighbours: that a query shall have, on average.

    Returns:
      (q,), below which that share of the public records is.
    """
    check.within(0, records, neighbours=neighbours)
    check.at_least(1, **{"public records": len(public)})
    squares = (queries**2).sum(axis=1)[:, None] + (public**2).sum(axis=1)
    apart = np.sqrt(np.maximum(0.0, squares - 2 * queries @ public.T))
    return np.asarray(np.quantile(apart, min(1.0, neighbours / records), axis=1))
