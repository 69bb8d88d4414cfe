"""The part of who asks: hides the query, and learns what is released and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dpal.capc.key_streams import KeyStream
from dpal.capc.messages import HiddenQuery, HiddenWeights, MaskedOutcome, QuerierDeal
from dpal.capc.party_step_helpers import Outbox, Outgoing, first_round, unexpected
from dpal.capc.querier_votes import QuerierVotes, require_secrets
from dpal.capc.ring import Ring, ring_product, to_ring
from dpal.capc.terms import GUARDIAN, Features, QueryBatch
from dpal.errors import ParameterError


@dataclass(frozen=True, eq=False, kw_only=True)
class QuerierBatch(QuerierVotes):
    """Where who asks stands.

    Attributes:
      features: (queries, features) the queries; private to who asks.
      deal: from the guardian, once it came.
      weights: what sites sent of their hidden weights.
      own: (queries, outcomes) its masked shares of each site's outcomes.
      replies: the sites' masked shares.
    """

    features: Features
    deal: QuerierDeal | None = None
    weights: Mapping[str, HiddenWeights] = field(default_factory=dict)
    own: Mapping[str, Ring] = field(default_factory=dict)
    replies: Mapping[str, Ring] = field(default_factory=dict)

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come next."""
        if self.answers is not None:
            return frozenset()
        if self.deal is None or self.margin is not None or self.lacks_ballot_deal:
            return frozenset({GUARDIAN})
        came = self.replies if self.batch.rule.second is None else self.ballots
        missing = set(self.batch.sites) - came.keys()
        return frozenset(missing | ({self.batch.dealer} if self.lacks_last_deal else set()))

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
            return self.with_last_deal(data)._with_margin()
        if sender in self.batch.sites and sender not in self.weights:
            hidden = HiddenWeights.decode(data, self.batch)
            return replace(self, weights={**self.weights, sender: hidden})._asking([sender])
        if sender in self.own and sender not in self.replies:
            reply = MaskedOutcome.decode(data, self.batch).values
            return replace(self, replies={**self.replies, sender: reply})._with_margin()
        if self.batch.rule.second and sender in self.replies and sender not in self.ballots:
            return self.with_ballot(sender, data)._with_margin()
        raise unexpected(sender, self.awaited)

    def _from_guardian(self, data: bytes) -> tuple[QuerierBatch, Outbox]:
        if self.margin is not None:
            return self.released(data), ()
        if self.deal is None:
            return replace(self, deal=QuerierDeal.decode(data, self.batch))._asking(self.weights)
        if self.lacks_ballot_deal:
            return self.with_ballot_deal(data)._with_margin()
        raise unexpected(GUARDIAN, self.awaited)

    def _asking(self, sites: Iterable[str]) -> tuple[QuerierBatch, Outbox]:
        """Hides the queries for sites whose weights came, once the guardian has dealt."""
        if self.deal is None:
            return self, ()
        seed, (queries, features) = self.deal.seed.tobytes(), self.features.shape
        plain = to_ring(self.features)
        hidden = plain - KeyStream(seed, "queries").ring(queries, features)
        masks = self.deal.keys.masks.reshape(self.deal.tops.shape)
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
        if self.deal is None or self.awaited:
            return self, ()
        opened = np.stack([self.own[site] + self.replies[site] for site in self.batch.sites])
        return self.compared(self.deal.signs(opened, 0))


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
    require_secrets(batch, secrets)
    return QuerierBatch(batch=batch, features=features, secrets=secrets)
