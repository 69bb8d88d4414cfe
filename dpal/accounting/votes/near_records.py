"""Single private records that vote near a query: what one of them is charged for.

A record votes on at most so many queries of a block, however many are asked, and by itself: if it
is blanked, all others vote as before. So the noisy counts of a block are one Gaussian release,
whose squared sensitivity is that many votes, or twice as many where a record is replaced.

Source: the proof is in docs/voting.md; individual filters are Feldman & Zrnic (2021).
"""

from __future__ import annotations

from dataclasses import dataclass

from dpal import check
from dpal.accounting.events import NoisyVotes
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError
from dpal.privacy import Adjacency


@dataclass(frozen=True, kw_only=True)
class NearRecords:
    """How records vote in place of teachers; public.

    Attributes:
      votes: most queries of a block on which one record votes.
      neighbours: records that are expected to lie within the distance of a query.
      bar: noisy votes that the class in front must have, in standard deviations of the noise.
    """

    votes: int
    neighbours: float
    bar: float

    def __post_init__(self) -> None:
        check.at_least(1, votes=self.votes, neighbours=self.neighbours)
        check.at_least(0, bar=self.bar)

    def event(self, sigma: float, adjacency: Adjacency) -> NoisyVotes:
        """What a block is charged as, however many queries it has."""
        return near_votes_event(self.votes, sigma, adjacency)


def near_votes_event(votes: int, sigma: float, adjacency: Adjacency) -> NoisyVotes:
    """Noisy counts to which a record adds at most so many votes.

    Args:
      votes: one at most on each query.
      sigma: standard deviation of the noise on every count, in votes.
      adjacency: a blanked record takes its votes away; one that is replaced may add as many.
    """
    each = 1 if adjacency is Adjacency.ZERO_OUT else 2
    return NoisyVotes(queries=votes, squared_sensitivity=each, sigma=sigma)


def require_near(rule: VotingRule) -> None:
    """Requires a rule that records can vote by: one class of several, without a check.

    Raises:
      ParameterError: it is another one.
    """
    if rule.mechanism is not Mechanism.GNMAX or rule.confidence is not None or rule.by_answers:
        raise ParameterError.before_release(
            "records that vote themselves name one class each, and are answered above voting.bar; "
            "leave voting.mechanism, voting.threshold and voting.answer_from out"
        )
