"""Single private records that vote near a query: what one of them is charged for.

A record, or all of a group together, votes on at most so many queries of a block, however many are
asked, and by itself: if it is blanked, all others vote as before. So the noisy counts of a block
are one Gaussian release, whose squared sensitivity is that many squared lengths of a vote, or more
where what votes is replaced.

Source: the proof is in docs/guarantee.md; individual filters are Feldman & Zrnic (2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dpal import check
from dpal.accounting.events import NoisyVotes
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.canonical import LATER
from dpal.errors import ParameterError
from dpal.privacy import Adjacency


@dataclass(frozen=True, kw_only=True)
class NearRecords:
    """How records vote in place of teachers; public.

    Attributes:
      votes: most queries of a block on which one record, or one group, votes.
      neighbours: records that are expected to lie within the distance of a query.
      bar: noisy votes that the class in front must have, or by how many yes and no must differ, in
        standard deviations of the noise.
      blocks: so many last blocks are for campaigns that buy labels: there everybody may vote on
        every query, so that an answer depends on its query and on no other one.
    """

    votes: int
    neighbours: float
    bar: float
    blocks: int = field(default=0, metadata=LATER)

    def __post_init__(self) -> None:
        check.at_least(1, votes=self.votes, neighbours=self.neighbours)
        check.at_least(0, bar=self.bar, blocks=self.blocks)

    def votes_in(self, number: int, sizes: Sequence[int]) -> int:
        """Queries of a block on which one record votes at most.

        Args:
          number: of the block, from 1.
          sizes: queries of each block.
        """
        return sizes[number - 1] if number > len(sizes) - self.blocks else self.votes

    def events(
        self, rule: VotingRule, adjacency: Adjacency, sizes: Sequence[int]
    ) -> tuple[NoisyVotes, ...]:
        """What each block is charged as, but for the last ones however many queries it has."""
        labels = labels_of_votes(rule)
        return tuple(
            near_votes_event(self.votes_in(number, sizes), rule.sigma, adjacency, labels=labels)
            for number in range(1, len(sizes) + 1)
        )


def labels_of_votes(rule: VotingRule) -> int | None:
    """On how many labels a vote says yes or no; None where it names one class."""
    return None if rule.mechanism is Mechanism.GNMAX else rule.labels


def near_votes_event(
    votes: int, sigma: float, adjacency: Adjacency, *, labels: int | None = None
) -> NoisyVotes:
    """Noisy counts to which a record, or a group, adds at most so many votes.

    Args:
      votes: one at most on each query.
      sigma: standard deviation of the noise on every count, in votes; that on the difference of yes
        and no is the square root of 2 times as large.
      adjacency: whoever is blanked takes its votes away; who is replaced may add as many.
      labels: on how many labels a vote says yes or no; None where it names one class.
    """
    blanked = adjacency is Adjacency.ZERO_OUT
    if labels is None:
        # Votes are not negative: two of them are no further apart than their squares add up to.
        each: float = 1 if blanked else 2
    else:
        # Two votes may be opposite, twice their length apart; noise has 2 sigma^2 on a difference.
        each = labels / 2 if blanked else 2.0 * labels
    return NoisyVotes(queries=votes, squared_sensitivity=each, sigma=sigma)


def require_near(rule: VotingRule) -> None:
    """Requires a rule that records can vote by: a class, or yes or no on labels, without a check.

    Raises:
      ParameterError: it is another one.
    """
    plain = rule.mechanism in (Mechanism.GNMAX, Mechanism.BINARY) and rule.noises == 2
    if not plain or rule.confidence is not None or rule.by_answers or rule.counts:
        raise ParameterError.before_release(
            "records that vote themselves name one class each, or say yes or no on each label, and "
            "are answered above voting.bar; leave voting.mechanism, voting.threshold and "
            "voting.answer_from out"
        )
