"""Nearby private records vote, each on so many queries at most: budgets of single records.

Every private record that lies within a public distance of a query, in a *public* embedding, votes
for its class, or says yes or no on each label. The counts get Gaussian noise, and the class in
front is released, or none where it has too few noisy votes; of labels, whether yes is ahead of no,
where they are far enough apart. A record that has voted as often as it may is silent from then on.
So a record pays for the queries that it answers, and not for those that others do: how many queries
are asked is not limited, and they may be chosen in view of earlier answers.

Where groups are protected, those of a group that are near cast one vote together, the mean of
theirs, and the group is silent when it has voted as often as it may.

What a record or group does depends on itself, on the queries and on how often it has voted: if
another one is blanked, it votes as before. So of two neighbouring worlds the counts differ by the
votes of one of them, at most `votes` times by one vote; or, where it is replaced, by those of both.
Gaussian noise on differences whose squares add up to at most a limit, however they are chosen on
the way, is one Gaussian release of that limit: the proof is in docs/guarantee.md.

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
from dpal.voting.draw_noisy_outcomes import UNANSWERED, Released

Floats = NDArray[np.float64]

_MOST_AT_ONCE = 1 << 24  # distances in memory
_PARTS = 1 << 20  # of a vote: means are rounded towards 0 to them, so that sums are exact


@dataclass(frozen=True, kw_only=True)
class NeighbourVotes:
    """How private records near to a query vote; public.

    Attributes:
      classes: of the records; labels, where each has several.
      votes: most queries on which one record, or one group, votes.
      sigma: standard deviation of the noise on every count, in votes; that on the difference of yes
        and no is the square root of 2 times as large.
      bar: noisy votes that the class in front must have for a query to be answered; or by how many
        yes and no must differ for a label to be.
      several: whether a record says yes or no on each label, and names no class.
    """

    classes: int
    votes: int
    sigma: float
    bar: float = 0.0
    several: bool = False

    def __post_init__(self) -> None:
        check.at_least(1 if self.several else 2, classes=self.classes)
        check.positive(sigma=self.sigma)
        check.at_least(1, votes=self.votes)
        check.at_least(0, bar=self.bar)

    def event(self, adjacency: Adjacency) -> NoisyVotes:
        """What all queries together are charged as, however many there are."""
        labels = self.classes if self.several else None
        return near_votes_event(self.votes, self.sigma, adjacency, labels=labels)


class VotingRecords:
    """Private records and how often each may still vote, which is kept in memory alone.

    A second one of the same records begins with full budgets: it is another release, and is charged
    as one.
    """

    def __init__(
        self,
        rule: NeighbourVotes,
        embeddings: Floats,
        labels: NDArray[np.integer],
        *,
        groups: NDArray[np.integer] | None = None,
    ) -> None:
        """Begins with full budgets.

        Args:
          rule: how they vote.
          embeddings: (n, d) public embeddings of private records.
          labels: (n,) their classes; or (n, labels) zeros and ones. What is negative is not known:
            a record of which nothing is known is blank and never votes.
          groups: (n,) numbers from 0, equal for records that vote together and are protected
            together; None where each votes for itself. Public.

        Raises:
          ParameterError: shapes or classes do not belong together.
        """
        shape = (len(embeddings), rule.classes)[: 2 if rule.several else 1]
        sound = embeddings.ndim == 2 and labels.shape == shape and np.isfinite(embeddings).all()
        if not sound or not (labels < (2 if rule.several else rule.classes)).all():
            raise ParameterError("private records and their labels do not belong together")
        if groups is not None and (groups.shape != shape[:1] or not (groups >= 0).all()):
            raise ParameterError("every private record needs a group, numbered from 0")
        self.rule, self._embeddings, self._labels = rule, embeddings, labels.astype(np.int64)
        self._squares = (embeddings**2).sum(axis=1)
        self._owners = np.arange(len(labels)) if groups is None else groups.astype(np.int64)
        self._speaks = (self._labels >= 0).reshape(len(labels), -1).any(axis=1)
        self._left = np.full(int(self._owners.max(initial=-1)) + 1, rule.votes)

    def ask(self, queries: Floats, radii: Floats, *, rng: BitSource) -> Released:
        """Answers queries in order. Whoever publishes any answer has paid `rule.event` first.

        Args:
          queries: (q, d) embeddings of public records; those of a later call may be chosen in view
            of the answers to earlier ones.
          radii: (q,) Euclidean distances within which records vote; public, as of `radii_for`.
          rng: source of the noise.

        Returns:
          Classes, or yes or no on each label; UNANSWERED where votes were too few or too divided.
        """
        return near_answers(self.rule, self.cast(queries, radii), rng=rng)

    def cast(self, queries: Floats, radii: Floats) -> Floats:
        """Votes for each class, (q, classes), which are paid for by who casts them. Private.

        Of labels they are how many more say yes than no.
        """
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
                may = self._left[self._owners] > 0
                counts[row] = self._votes_of(np.flatnonzero(close & self._speaks & may))
        return counts

    def _votes_of(self, voting: NDArray[np.intp]) -> Floats:
        """The sum of the votes of all to whom these records belong, who pay one each."""
        owners, own = np.unique(self._owners[voting], return_inverse=True)
        self._left[owners] -= 1
        sizes, classes = np.bincount(own), self.rule.classes
        if not self.rule.several:
            cast, times = np.unique(own * classes + self._labels[voting], return_counts=True)
            shares = times * _PARTS // sizes[cast // classes]
            # Whole parts of a vote, whose sums float64 holds exactly in whatever order.
            return np.bincount(cast % classes, weights=shares, minlength=classes) / _PARTS
        said = np.zeros((owners.size, classes), np.int64)
        signs = np.where(self._labels[voting] < 0, 0, 2 * self._labels[voting] - 1)
        np.add.at(said, own, signs)
        parts = np.sign(said) * (np.abs(said) * _PARTS // sizes[:, None])
        return np.asarray(parts.sum(axis=0) / _PARTS)


def near_answers(rule: NeighbourVotes, counts: Floats, *, rng: BitSource) -> Released:
    """Answers by votes that were cast, which are paid for by who casts them.

    Args:
      rule: how they are answered.
      counts: (queries, classes) votes; of labels how many more say yes than no.
      rng: source of the noise.
    """
    spread = math.sqrt(2) * rule.sigma if rule.several else rule.sigma
    noisy, step = on_grid(counts.ravel(), spread, rng=rng)
    shown = noisy.reshape(counts.shape)
    # Noisy counts are what is charged: whatever is read off them costs nothing more.
    if rule.several:
        said = (shown > 0).astype(np.int8)
        said[np.abs(shown) * step < rule.bar] = UNANSWERED
        return Released(said)
    winners = shown.argmax(axis=1)
    winners[shown.max(axis=1, initial=0) * step < rule.bar] = UNANSWERED
    return Released(winners)


def least_noise(votes: int, target: PrivacyTarget, *, labels: int | None = None) -> float:
    """The least sigma with which records that vote so often keep a promise.

    Args:
      votes: queries on which one record, or one group, votes at most.
      target: the promise.
      labels: on how many labels it says yes or no; None where it names one class.

    Raises:
      ParameterError: none does.
    """

    def epsilon(sigma: float) -> float:
        rule = NeighbourVotes(
            classes=labels or 2, votes=votes, sigma=sigma, several=labels is not None
        )
        charge = Charge(cohorts=("0",), event=rule.event(target.adjacency))
        return campaign_epsilon(
            [Release(name="votes", kind=VOTING, phase=0, charges=(charge,))], target
        )

    # Beyond that so much is told that losses are no numbers any more.
    lengths = votes if labels is None else votes * labels / 2
    return smallest_safe(epsilon, target.epsilon, low=math.sqrt(lengths) / 8)


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
