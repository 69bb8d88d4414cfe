"""A site's part in a batch: answers with its private model, under masks, pads and noise.

It learns nothing of the query, and nobody learns its votes: to the guardian, which made its keys,
its share of a vote would tell the very outcome (`dpal.capc.shared_signs`), so that it never
leaves without the pad that only the site and who asks can draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpal.capc.guardian import product_shares, weight_masks
from dpal.capc.key_streams import fresh_seed
from dpal.capc.messages import (
    HiddenQuery,
    HiddenWeights,
    LastDeal,
    MaskedBallot,
    MaskedOutcome,
    PaddedVotes,
    SiteBallotDeal,
    SiteDeal,
    dealt_fields,
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
from dpal.capc.shared_signs import SignKeys, deal_signs, sign_keys, sign_shares
from dpal.capc.terms import GUARDIAN, QUERIER, QueryBatch, SiteModel
from dpal.errors import ParameterError
from dpal.randomness import BitSource


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteBatch:
    """Where a site stands.

    Attributes:
      batch: what is asked.
      name: of the site.
      model: its own; private.
      noise: (queries, counts) its share of the noise, from `noise_share`; private.
      secrets: of the session, with who asks and with every other site.
      deal: from the guardian, once it came.
      ballot_deal: likewise, of the second round; none where there is no such round.
      outcomes: (queries, outcomes) its share of what the first of two rounds found; private.
      ballot: (queries, compared) its share of what is compared in the second round, masked.
      is_done: whether it answered.
    """

    batch: QueryBatch
    name: str
    model: SiteModel
    noise: NDArray[np.int64]
    secrets: Mapping[str, bytes]
    deal: SiteDeal | None = None
    ballot_deal: SiteBallotDeal | None = None
    outcomes: Ring | None = None
    ballot: Ring | None = None
    is_done: bool = False

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come before it is done."""
        if self.is_done:
            return frozenset()
        dealt = self.deal is not None and (self._is_short or self.ballot_deal is not None)
        return frozenset({QUERIER if dealt else GUARDIAN})

    @property
    def _is_short(self) -> bool:
        return self.batch.rule.second is None

    def receive(self, sender: str, data: bytes) -> tuple[SiteBatch, Outbox]:
        """What it becomes by a message, and what it sends.

        Raises:
          ProtocolError: the message cannot come now.
        """
        if sender not in self.awaited:
            raise unexpected(sender, self.awaited)
        if self.deal is None:
            state = replace(self, deal=SiteDeal.decode(data, self.batch))
            return state, state._weights() if self._is_short else ()
        if sender == GUARDIAN:
            state = replace(self, ballot_deal=SiteBallotDeal.decode(data, self.batch))
            return state, state._weights()
        if self.ballot is not None and self.ballot_deal is not None and self.outcomes is not None:
            other = MaskedBallot.decode(data, self.batch).values
            found = _shares(self.ballot + other, self.ballot_deal)
            return self.voted(ballot_shares(self.outcomes, found, self.batch))
        query = HiddenQuery.decode(data, self.batch)
        own, outcomes = self._outcomes(query, self.deal)
        reply = Outgoing(QUERIER, MaskedOutcome(own))
        if self.ballot_deal is None:
            state, outbox = self.voted(outcomes)
            return state, (reply, *outbox)
        ballot = second_round(outcomes, self.batch, constants=False)
        ballot += _keys(self.ballot_deal).masks.reshape(ballot.shape)
        state = replace(self, outcomes=outcomes, ballot=ballot)
        return state, (reply, Outgoing(QUERIER, MaskedBallot(ballot)))

    def _weights(self) -> Outbox:
        """Its hidden weights: they ask for the query, so nothing of the guardian's is missing."""
        if self.deal is None:
            return ()
        masks = weight_masks(self.deal.seed.tobytes(), self.batch)
        return (Outgoing(QUERIER, HiddenWeights(to_ring(self.model.weights) - masks)),)

    def _outcomes(self, query: HiddenQuery, deal: SiteDeal) -> tuple[Ring, Ring]:
        """What it opens, and its shares of the outcomes, which must not leave."""
        seed = deal.seed.tobytes()
        own = ring_product(query.difference, weight_masks(seed, self.batch).T)
        own += product_shares(seed, self.batch) + to_ring(self.model.bias)
        masked = first_round(own, self.batch) + _keys(deal).masks.reshape(query.masked.shape)
        return masked, _shares(masked + query.masked, deal)

    def voted(self, votes: Ring) -> tuple[SiteBatch, Outbox]:
        """Its shares of the votes leave padded alone."""
        padded = votes + to_ring(self.noise) + self._pads()
        return replace(self, is_done=True), (Outgoing(GUARDIAN, PaddedVotes(padded)),)

    def _pads(self) -> Ring:
        """Who asks takes its pad off again; those between two sites are added and taken off."""
        total = pad(self.secrets[QUERIER], self.batch)
        place = self.batch.sites.index(self.name)
        for other, site in enumerate(self.batch.sites):
            if other != place:
                shared = pad(self.secrets[site], self.batch)
                total = total + shared if place < other else total - shared
        return total


def begin_site(
    batch: QueryBatch,
    name: str,
    model: SiteModel,
    noise: NDArray[np.int64],
    secrets: Mapping[str, bytes],
    *,
    rng: BitSource,
) -> tuple[SiteBatch, Outbox]:
    """A site begins a batch; the one whose turn it is deals the last comparison.

    Args:
      batch: what is asked, under a number that this session has not had (`require_new`).
      name: of the site.
      model: its own.
      noise: its share of the noise.
      secrets: of the session, with who asks and with every other site of the batch.
      rng: source of the last comparison's keys.

    Raises:
      ParameterError: the model, the noise or the secrets do not fit the batch.
    """
    if model.weights.shape != (batch.labels, batch.features):
        raise ParameterError.before_release(
            f"the model of {name} is for other labels or features than were agreed on"
        )
    model.require_bias(batch.rule.largest_bias)
    if noise.shape != (batch.queries, batch.rule.counts):
        raise ParameterError.before_release("noise is needed for each count of the batch")
    if name not in batch.sites or {QUERIER, *batch.sites} - {name} - secrets.keys():
        raise ParameterError.before_release(f"{name} has no secret with a party of the batch")
    state = SiteBatch(batch=batch, name=name, model=model, noise=noise, secrets=secrets)
    deals = name == batch.dealer and not batch.tells_counts
    return state, _last_deals(batch, rng) if deals else ()


def _keys(deal: SiteDeal | SiteBallotDeal) -> SignKeys:
    return sign_keys(deal.seed.tobytes(), "signs", deal.tops.size)


def _shares(opened: Ring, deal: SiteDeal | SiteBallotDeal) -> Ring:
    """A site's shares of whether what was opened is at least 0."""
    shares = sign_shares(opened.ravel(), 1, _keys(deal), deal.corrections, deal.salt.tobytes())
    return shares.reshape(opened.shape)


def _last_deals(batch: QueryBatch, rng: BitSource) -> Outbox:
    """Keys by which who asks and the guardian compare counts that neither knows."""
    seeds, salt = (fresh_seed(rng), fresh_seed(rng)), fresh_seed(rng)
    first, second = (sign_keys(seed, "signs", batch.counted) for seed in seeds)
    corrections, shape = deal_signs(first, second, salt), (batch.queries, batch.rule.counts)
    return tuple(
        Outgoing(receiver, LastDeal(**dealt_fields(seed, salt, corrections, *shape)))
        for receiver, seed in zip((QUERIER, GUARDIAN), seeds, strict=True)
    )
