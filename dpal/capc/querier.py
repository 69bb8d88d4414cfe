"""The part of who asks: hides the query, and learns what is released and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpal.capc.key_streams import KeyStream
from dpal.capc.messages import (
    GuardianAnswer,
    HiddenQuery,
    HiddenWeights,
    LastDeal,
    MaskedBallot,
    MaskedMargin,
    MaskedOutcome,
    PaddedCounts,
    QuerierBallotDeal,
    QuerierDeal,
)
from dpal.capc.parties import (
    Outbox,
    Outgoing,
    ballot_shares,
    first_round,
    pad,
    second_round,
    unexpected,
)
from dpal.capc.ring import Ring, ring_product, to_ring
from dpal.capc.shared_signs import SignKeys, sign_keys, sign_shares
from dpal.capc.terms import GUARDIAN, Features, QueryBatch
from dpal.errors import ParameterError, ProtocolError

_LARGEST_COUNT = 1 << 20  # a thousand sites, and a thousand deviations of the most noise


@dataclass(frozen=True, eq=False, kw_only=True)
class QuerierBatch:
    """Where who asks stands.

    Attributes:
      batch: what is asked.
      features: (queries, features) the queries; private to who asks.
      secrets: of the session, with every site.
      deal: from the guardian, once it came.
      ballot_deal: likewise, of the second round; none where there is no such round.
      last_deal: from the dealing site, once it came; none where counts are released.
      weights: what sites sent of their hidden weights.
      own: (queries, outcomes) its masked shares of each site's outcomes.
      replies: the sites' masked shares.
      ballots: (queries, compared) the sites' masked shares of the second round.
      margin: (queries, counts) its share of the noisy margins, masked, or of the noisy counts.
      answers: (queries, counts) at the end: the noisy majorities, 0 or 1, or the noisy counts.
    """

    batch: QueryBatch
    features: Features
    secrets: Mapping[str, bytes]
    deal: QuerierDeal | None = None
    ballot_deal: QuerierBallotDeal | None = None
    last_deal: LastDeal | None = None
    weights: Mapping[str, HiddenWeights] = field(default_factory=dict)
    own: Mapping[str, Ring] = field(default_factory=dict)
    replies: Mapping[str, Ring] = field(default_factory=dict)
    ballots: Mapping[str, Ring] = field(default_factory=dict)
    margin: Ring | None = None
    answers: NDArray[np.int64] | None = None

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come next."""
        if self.answers is not None:
            return frozenset()
        if self.deal is None or self.margin is not None or self._lacks_second_deal:
            return frozenset({GUARDIAN})
        came = self.replies if self.batch.rule.second is None else self.ballots
        missing = set(self.batch.sites) - came.keys()
        return frozenset(missing | ({self.batch.dealer} if self.lacks_last_deal else set()))

    @property
    def may_be_charged(self) -> bool:
        """Whether the guardian may have all it waits for, and charge."""
        return self.margin is not None

    @property
    def _lacks_second_deal(self) -> bool:
        return self.batch.rule.second is not None and self.ballot_deal is None

    @property
    def lacks_last_deal(self) -> bool:
        """Whether the dealing site's keys have not come."""
        return not self.batch.tells_counts and self.last_deal is None

    def receive(self, sender: str, data: bytes) -> tuple[QuerierBatch, Outbox]:
        """What it becomes by a message, and what it sends.

        Raises:
          ProtocolError: the message cannot come now.
        """
        if self.answers is not None:
            raise unexpected(sender, self.awaited)
        if sender == GUARDIAN:
            return self._from_guardian(data)
        if sender == self.batch.dealer and self.lacks_last_deal:
            deal = LastDeal.decode(data, self.batch)
            return replace(self, last_deal=deal)._with_margin()
        if sender in self.batch.sites and sender not in self.weights:
            hidden = HiddenWeights.decode(data, self.batch)
            return replace(self, weights={**self.weights, sender: hidden})._asking([sender])
        if sender in self.own and sender not in self.replies:
            reply = MaskedOutcome.decode(data, self.batch).values
            return replace(self, replies={**self.replies, sender: reply})._with_margin()
        if self.batch.rule.second and sender in self.replies and sender not in self.ballots:
            ballot = MaskedBallot.decode(data, self.batch).values
            return replace(self, ballots={**self.ballots, sender: ballot})._with_margin()
        raise unexpected(sender, self.awaited)

    def _from_guardian(self, data: bytes) -> tuple[QuerierBatch, Outbox]:
        if self.margin is not None:
            return self._released(data, self.margin), ()
        if self.deal is None:
            return replace(self, deal=QuerierDeal.decode(data, self.batch))._asking(self.weights)
        if self._lacks_second_deal:
            deal = QuerierBallotDeal.decode(data, self.batch)
            return replace(self, ballot_deal=deal)._with_margin()
        raise unexpected(GUARDIAN, self.awaited)

    def _released(self, data: bytes, margin: Ring) -> QuerierBatch:
        """What it becomes by the guardian's last message."""
        if self.batch.tells_counts:
            counts = PaddedCounts.decode(data, self.batch).values + margin
            return replace(self, answers=_counts(counts))
        answer = GuardianAnswer.decode(data, self.batch)
        return replace(self, answers=self._answers(answer, margin))

    def _asking(self, sites: Iterable[str]) -> tuple[QuerierBatch, Outbox]:
        """Hides the queries for sites whose weights came, once the guardian has dealt."""
        if self.deal is None:
            return self, ()
        seed, (queries, features) = self.deal.seed.tobytes(), self.features.shape
        plain = to_ring(self.features)
        hidden = plain - KeyStream(seed, "queries").ring(queries, features)
        masks = _keys(self.deal).masks.reshape(self.deal.tops.shape)
        own, outbox = dict(self.own), []
        for site in sites:
            place = self.batch.sites.index(site)
            numbers = ring_product(plain, self.weights[site].difference.T)
            numbers += self.deal.products[place]
            own[site] = first_round(numbers, self.batch) + masks[place]
            outbox.append(Outgoing(site, HiddenQuery(hidden, own[site])))
        return replace(self, own=own), tuple(outbox)

    def _with_margin(self) -> tuple[QuerierBatch, Outbox]:
        """Its share of the noisy counts, or margins, once all sites have answered."""
        deal, sites = self.deal, self.batch.sites
        if deal is None or self.awaited:
            return self, ()
        votes = _shares(np.stack([self.own[site] + self.replies[site] for site in sites]), deal)
        outbox: Outbox = ()
        if self.ballot_deal is not None:
            ballots = second_round(votes, self.batch, constants=True)
            ballots += _keys(self.ballot_deal).masks.reshape(ballots.shape)
            outbox = tuple(
                Outgoing(site, MaskedBallot(own)) for site, own in zip(sites, ballots, strict=True)
            )
            others = np.stack([self.ballots[site] for site in sites])
            votes = ballot_shares(votes, _shares(ballots + others, self.ballot_deal), self.batch)
        state, more = self.counted(votes)
        return state, (*outbox, *more)

    def counted(self, votes: Ring) -> tuple[QuerierBatch, Outbox]:
        """What it becomes by its (sites, queries, counts) shares of votes, and what it sends."""
        last, sites = self.last_deal, self.batch.sites
        count = votes.sum(axis=0, dtype=np.uint32)
        for site in sites:
            count = count - pad(self.secrets[site], self.batch)
        if last is None:
            return replace(self, margin=count), ()
        # Yes where more than half are for it: twice the count, less sites and one, is not negative.
        margin = 2 * count - np.uint32(len(sites) * self.batch.rule.parts + 1)
        margin += _keys(last).masks.reshape(margin.shape)
        return replace(self, margin=margin), (Outgoing(GUARDIAN, MaskedMargin(margin)),)

    def _answers(self, answer: GuardianAnswer, margin: Ring) -> NDArray[np.int64]:
        if self.last_deal is None:
            raise unexpected(GUARDIAN, self.awaited)
        answers = _shares(margin + answer.masked, self.last_deal) + answer.shares
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


def _keys(deal: QuerierDeal | QuerierBallotDeal | LastDeal) -> SignKeys:
    return sign_keys(deal.seed.tobytes(), "signs", deal.tops.size)


def _shares(opened: Ring, deal: QuerierDeal | QuerierBallotDeal | LastDeal) -> Ring:
    """Who asks' shares of whether what was opened is at least 0."""
    shares = sign_shares(opened.ravel(), 0, _keys(deal), deal.corrections, deal.salt.tobytes())
    return shares.reshape(opened.shape)


def begin_querier(
    batch: QueryBatch, features: Features, secrets: Mapping[str, bytes]
) -> QuerierBatch:
    """Who asks begins a batch.

    Args:
      batch: what is asked, under a number that this session has not had (`require_new`).
      features: (queries, features) whole numbers of 8 bits.
      secrets: of the session, with every site of the batch.

    Raises:
      ParameterError: queries or secrets do not fit the batch.
    """
    if features.shape != (batch.queries, batch.features) or features.dtype != np.int8:
        raise ParameterError.before_release(
            f"{batch.queries} queries of {batch.features} whole numbers of 8 bits were announced, "
            "and others are asked"
        )
    if set(batch.sites) - secrets.keys():
        raise ParameterError.before_release("there is no secret with a site of the batch")
    return QuerierBatch(batch=batch, features=features, secrets=secrets)
