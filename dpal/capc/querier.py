"""The part of who asks: hides the query, and learns the noisy majorities and nothing else."""

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
    MaskedMargin,
    MaskedOutcome,
    QuerierDeal,
)
from dpal.capc.parties import Outbox, Outgoing, pad, unexpected
from dpal.capc.ring import Ring, ring_product, to_ring
from dpal.capc.shared_signs import SignKeys, sign_keys, sign_shares
from dpal.capc.terms import GUARDIAN, Features, QueryBatch
from dpal.errors import ParameterError, ProtocolError


@dataclass(frozen=True, eq=False, kw_only=True)
class QuerierBatch:
    """Where who asks stands.

    Attributes:
      batch: what is asked.
      features: (queries, features) the queries; private to who asks.
      secrets: of the session, with every site.
      deal: from the guardian, once it came.
      last_deal: from the dealing site, once it came.
      weights: what sites sent of their hidden weights.
      own: (queries, labels) its masked shares of each site's outcomes.
      replies: the sites' masked shares.
      margin: (queries, labels) its share of the noisy margins, masked.
      answers: (queries, labels) the noisy majorities, 0 or 1, at the end.
    """

    batch: QueryBatch
    features: Features
    secrets: Mapping[str, bytes]
    deal: QuerierDeal | None = None
    last_deal: LastDeal | None = None
    weights: Mapping[str, HiddenWeights] = field(default_factory=dict)
    own: Mapping[str, Ring] = field(default_factory=dict)
    replies: Mapping[str, Ring] = field(default_factory=dict)
    margin: Ring | None = None
    answers: NDArray[np.int8] | None = None

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come next."""
        if self.answers is not None:
            return frozenset()
        if self.deal is None or self.margin is not None:
            return frozenset({GUARDIAN})
        missing = set(self.batch.sites) - self.replies.keys()
        return frozenset(missing | ({self.batch.dealer} if self.last_deal is None else set()))

    def receive(self, sender: str, data: bytes) -> tuple[QuerierBatch, Outbox]:
        """What it becomes by a message, and what it sends.

        Raises:
          ProtocolError: the message cannot come now.
        """
        if self.answers is not None:
            raise unexpected(sender, self.awaited)
        if sender == GUARDIAN:
            return self._from_guardian(data)
        if sender == self.batch.dealer and self.last_deal is None:
            deal = LastDeal.decode(data, self.batch)
            return replace(self, last_deal=deal)._with_margin()
        if sender in self.batch.sites and sender not in self.weights:
            hidden = HiddenWeights.decode(data, self.batch)
            return replace(self, weights={**self.weights, sender: hidden})._asking([sender])
        if sender in self.own and sender not in self.replies:
            reply = MaskedOutcome.decode(data, self.batch).values
            return replace(self, replies={**self.replies, sender: reply})._with_margin()
        raise unexpected(sender, self.awaited)

    def _from_guardian(self, data: bytes) -> tuple[QuerierBatch, Outbox]:
        if self.deal is None:
            return replace(self, deal=QuerierDeal.decode(data, self.batch))._asking(self.weights)
        if self.margin is None:
            raise unexpected(GUARDIAN, self.awaited)
        answer = GuardianAnswer.decode(data, self.batch)
        return replace(self, answers=self._answers(answer, self.margin)), ()

    def _asking(self, sites: Iterable[str]) -> tuple[QuerierBatch, Outbox]:
        """Hides the queries for sites whose weights came, once the guardian has dealt."""
        if self.deal is None:
            return self, ()
        seed, (queries, features) = self.deal.seed.tobytes(), self.features.shape
        plain = to_ring(self.features)
        hidden = plain - KeyStream(seed, "queries").ring(queries, features)
        masks = self._keys(self.deal).masks.reshape(self.deal.products.shape)
        own, outbox = dict(self.own), []
        for site in sites:
            place = self.batch.sites.index(site)
            own[site] = ring_product(plain, self.weights[site].difference.T)
            own[site] += self.deal.products[place] + masks[place]
            outbox.append(Outgoing(site, HiddenQuery(hidden, own[site])))
        return replace(self, own=own), tuple(outbox)

    def _with_margin(self) -> tuple[QuerierBatch, Outbox]:
        """Its share of the noisy margins, once all sites have answered."""
        deal, last = self.deal, self.last_deal
        if deal is None or last is None or len(self.replies) < len(self.batch.sites):
            return self, ()
        opened = np.stack([self.own[site] + self.replies[site] for site in self.batch.sites])
        shares = sign_shares(
            opened.ravel(), 0, self._keys(deal), deal.corrections, deal.salt.tobytes()
        )
        count = shares.reshape(opened.shape).sum(axis=0, dtype=np.uint32)
        for site in self.batch.sites:
            count = count - pad(self.secrets[site], self.batch)
        # Yes where more than half are for it: twice the count, less sites and one, is not negative.
        margin = 2 * count - np.uint32(len(self.batch.sites) + 1)
        margin += self._last_keys(last).masks.reshape(margin.shape)
        return replace(self, margin=margin), (Outgoing(GUARDIAN, MaskedMargin(margin)),)

    def _answers(self, answer: GuardianAnswer, margin: Ring) -> NDArray[np.int8]:
        if self.last_deal is None:
            raise unexpected(GUARDIAN, self.awaited)
        shares = sign_shares(
            (margin + answer.masked).ravel(),
            0,
            self._last_keys(self.last_deal),
            self.last_deal.corrections,
            self.last_deal.salt.tobytes(),
        )
        answers = shares.reshape(margin.shape) + answer.shares
        if (answers > 1).any():
            raise ProtocolError("answers came that are neither yes nor no: a party does not keep "
                                "to the protocol")  # fmt: skip
        return answers.astype(np.int8)

    def _keys(self, deal: QuerierDeal) -> SignKeys:
        return sign_keys(deal.seed.tobytes(), "signs", deal.products.size)

    def _last_keys(self, deal: LastDeal) -> SignKeys:
        return sign_keys(deal.seed.tobytes(), "signs", self.batch.answers)


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
