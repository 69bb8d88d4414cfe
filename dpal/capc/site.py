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
    MaskedOutcome,
    PaddedVotes,
    SiteDeal,
    dealt_fields,
)
from dpal.capc.parties import Outbox, Outgoing, pad, unexpected
from dpal.capc.ring import Ring, ring_product, to_ring
from dpal.capc.shared_signs import deal_signs, sign_keys, sign_shares
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
      noise: (queries, labels) its share of the noise, from `noise_share`; private.
      secrets: of the session, with who asks and with every other site.
      deal: from the guardian, once it came.
      is_done: whether it answered.
    """

    batch: QueryBatch
    name: str
    model: SiteModel
    noise: NDArray[np.int64]
    secrets: Mapping[str, bytes]
    deal: SiteDeal | None = None
    is_done: bool = False

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come before it is done."""
        if self.is_done:
            return frozenset()
        return frozenset({GUARDIAN if self.deal is None else QUERIER})

    def receive(self, sender: str, data: bytes) -> tuple[SiteBatch, Outbox]:
        """What it becomes by a message, and what it sends.

        Raises:
          ProtocolError: the message cannot come now.
        """
        if sender not in self.awaited:
            raise unexpected(sender, self.awaited)
        if self.deal is None:
            deal = SiteDeal.decode(data, self.batch)
            masks = weight_masks(deal.seed.tobytes(), self.batch)
            hidden = HiddenWeights(to_ring(self.model.weights) - masks)
            return replace(self, deal=deal), (Outgoing(QUERIER, hidden),)
        query = HiddenQuery.decode(data, self.batch)
        own, votes = self._vote(query, self.deal)
        return replace(self, is_done=True), (
            Outgoing(QUERIER, MaskedOutcome(own)),
            Outgoing(GUARDIAN, PaddedVotes(votes + to_ring(self.noise) + self._pads())),
        )

    def _vote(self, query: HiddenQuery, deal: SiteDeal) -> tuple[Ring, Ring]:
        """Its masked share of the outcomes, and its share of the votes, which must not leave."""
        seed, shape = deal.seed.tobytes(), query.masked.shape
        keys = sign_keys(seed, "signs", self.batch.answers)
        masks = weight_masks(seed, self.batch)
        own = ring_product(query.difference, masks.T) + product_shares(seed, self.batch)
        own += to_ring(self.model.bias) + keys.masks.reshape(shape)
        opened = (own + query.masked).ravel()
        votes = sign_shares(opened, 1, keys, deal.corrections, deal.salt.tobytes())
        return own, votes.reshape(shape)

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
    if noise.shape != (batch.queries, batch.labels):
        raise ParameterError.before_release("noise is needed for each answer of the batch")
    if name not in batch.sites or {QUERIER, *batch.sites} - {name} - secrets.keys():
        raise ParameterError.before_release(f"{name} has no secret with a party of the batch")
    state = SiteBatch(batch=batch, name=name, model=model, noise=noise, secrets=secrets)
    return state, _last_deals(batch, rng) if name == batch.dealer else ()


def _last_deals(batch: QueryBatch, rng: BitSource) -> Outbox:
    """Keys by which who asks and the guardian compare counts that neither knows."""
    seeds, salt = (fresh_seed(rng), fresh_seed(rng)), fresh_seed(rng)
    first, second = (sign_keys(seed, "signs", batch.answers) for seed in seeds)
    corrections, shape = deal_signs(first, second, salt), (batch.queries, batch.labels)
    return tuple(
        Outgoing(receiver, LastDeal(**dealt_fields(seed, salt, corrections, *shape)))
        for receiver, seed in zip((QUERIER, GUARDIAN), seeds, strict=True)
    )
