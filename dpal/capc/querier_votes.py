"""What who asks does with its shares of sites' outcomes, however it came by them.

A second round, if the mechanism has one, then the sum, and what comes of it: answers or counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpal.capc.messages import (
    GuardianAnswer,
    LastDeal,
    MaskedBallot,
    MaskedMargin,
    PaddedCounts,
    QuerierBallotDeal,
)
from dpal.capc.party_step_helpers import (
    Outbox,
    Outgoing,
    ballot_shares,
    pad,
    second_round,
    unexpected,
)
from dpal.capc.ring import Ring
from dpal.capc.terms import GUARDIAN, QueryBatch
from dpal.errors import ParameterError, ProtocolError

_LARGEST_COUNT = 1 << 20  # a thousand sites, and a thousand deviations of the most noise


@dataclass(frozen=True, eq=False, kw_only=True)
class QuerierVotes:
    """Where who asks stands, but for how it comes by shares of outcomes.

    Attributes:
      batch: what is asked.
      secrets: of the session, with every site.
      ballot_deal: from the guardian, once it came; none where there is no second round.
      last_deal: from the dealing site, once it came; none where counts are released.
      ballots: (queries, compared) the sites' masked shares of the second round.
      margin: (queries, counts) its share of the noisy margins, masked, or of the noisy counts.
      answers: (queries, counts) at the end: the noisy majorities, 0 or 1, or the noisy counts.
    """

    batch: QueryBatch
    secrets: Mapping[str, bytes]
    ballot_deal: QuerierBallotDeal | None = None
    last_deal: LastDeal | None = None
    ballots: Mapping[str, Ring] = field(default_factory=dict)
    margin: Ring | None = None
    answers: NDArray[np.int64] | None = None

    @property
    def may_be_charged(self) -> bool:
        """Whether the guardian may have all it waits for, and charge."""
        return self.margin is not None

    @property
    def lacks_ballot_deal(self) -> bool:
        """Whether the guardian's keys of the second round have not come."""
        return self.batch.rule.second is not None and self.ballot_deal is None

    @property
    def lacks_last_deal(self) -> bool:
        """Whether the dealing site's keys have not come."""
        return not self.batch.tells_counts and self.last_deal is None

    def with_ballot_deal(self, data: bytes) -> Self:
        """What it becomes by the guardian's keys of the second round."""
        return replace(self, ballot_deal=QuerierBallotDeal.decode(data, self.batch))

    def with_last_deal(self, data: bytes) -> Self:
        """What it becomes by the keys of the dealing site."""
        return replace(self, last_deal=LastDeal.decode(data, self.batch))

    def with_ballot(self, sender: str, data: bytes) -> Self:
        """What it becomes by a site's share of the second round."""
        ballot = MaskedBallot.decode(data, self.batch).values
        return replace(self, ballots={**self.ballots, sender: ballot})

    def compared(self, votes: Ring) -> tuple[Self, Outbox]:
        """What it becomes by shares (sites, queries, outcomes), once nothing else is missing."""
        if self.ballot_deal is None:
            return self.counted(votes)
        sites = self.batch.sites
        ballots = second_round(votes, self.batch, constants=True)
        ballots += self.ballot_deal.keys.masks.reshape(ballots.shape)
        outbox = tuple(
            Outgoing(site, MaskedBallot(own)) for site, own in zip(sites, ballots, strict=True)
        )
        others = np.stack([self.ballots[site] for site in sites])
        found = self.ballot_deal.signs(ballots + others, 0)
        state, more = self.counted(ballot_shares(votes, found, self.batch))
        return state, (*outbox, *more)

    def counted(self, votes: Ring) -> tuple[Self, Outbox]:
        """What it becomes by its (sites, queries, counts) shares of votes, and what it sends."""
        last, sites = self.last_deal, self.batch.sites
        count = votes.sum(axis=0, dtype=np.uint32)
        for site in sites:
            count = count - pad(self.secrets[site], self.batch)
        if last is None:
            return replace(self, margin=count), ()
        # Yes where more than half are for it: twice the count, less sites and one, is not negative.
        margin = 2 * count - np.uint32(len(sites) * self.batch.rule.parts + 1)
        margin += last.keys.masks.reshape(margin.shape)
        return replace(self, margin=margin), (Outgoing(GUARDIAN, MaskedMargin(margin)),)

    def released(self, data: bytes) -> Self:
        """What it becomes by the guardian's last message."""
        if self.margin is None:
            raise unexpected(GUARDIAN, ())
        if self.batch.tells_counts:
            counts = PaddedCounts.decode(data, self.batch).values + self.margin
            return replace(self, answers=_counts(counts))
        answer = GuardianAnswer.decode(data, self.batch)
        return replace(self, answers=self._answers(answer, self.margin))

    def _answers(self, answer: GuardianAnswer, margin: Ring) -> NDArray[np.int64]:
        if self.last_deal is None:
            raise unexpected(GUARDIAN, ())
        answers = self.last_deal.signs(margin + answer.masked, 0) + answer.shares
        if (answers > 1).any():
            raise _of_no_use("answers came that are neither yes nor no")
        return answers.astype(np.int64)


def _counts(shares: Ring) -> NDArray[np.int64]:
    counts = shares.view(np.int32).astype(np.int64)
    if np.abs(counts).max() > _LARGEST_COUNT:
        raise _of_no_use("counts came that no votes make, with any noise")
    return counts


def _of_no_use(came: str) -> ProtocolError:
    """The refusal of what the guardian told last, and so has charged: it cannot be taken back."""
    error = ProtocolError(f"{came}: a party does not keep to the protocol; the batch is charged")
    error.released = None
    return error


def require_secrets(batch: QueryBatch, secrets: Mapping[str, bytes]) -> None:
    """Requires a secret with every site of a batch.

    Raises:
      ParameterError: there is none with one of them.
    """
    if set(batch.sites) - secrets.keys():
        raise ParameterError.before_release("there is no secret with a site of the batch")
