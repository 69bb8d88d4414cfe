"""A site's part in a batch: answers with its private model, under masks, pads and noise.

It learns nothing of the query, and nobody learns its votes (`dpal.capc.site_vote_shares`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpal.capc.guardian import product_shares, weight_masks
from dpal.capc.messages import HiddenQuery, HiddenWeights, MaskedOutcome, SiteDeal
from dpal.capc.party_step_helpers import Outbox, Outgoing, first_round, unexpected
from dpal.capc.ring import Ring, ring_product, to_ring
from dpal.capc.site_vote_shares import SiteVotes, last_deals, require_noise_and_secrets
from dpal.capc.terms import GUARDIAN, QUERIER, QueryBatch, SiteModel
from dpal.errors import ParameterError
from dpal.randomness import BitSource


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteBatch(SiteVotes):
    """Where a site stands.

    Attributes:
      model: its own; private.
      deal: from the guardian, once it came.
    """

    model: SiteModel
    deal: SiteDeal | None = None

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come before it is done."""
        if self.is_done:
            return frozenset()
        return frozenset({GUARDIAN if self.deal is None or self.lacks_ballot_deal else QUERIER})

    def receive(self, sender: str, data: bytes) -> tuple[SiteBatch, Outbox]:
        """What it becomes by a message, and what it sends.

        Raises:
          ProtocolError: the message cannot come now.
        """
        if sender not in self.awaited:
            raise unexpected(sender, self.awaited)
        if self.deal is None:
            state = replace(self, deal=SiteDeal.decode(data, self.batch))
            return state, () if state.lacks_ballot_deal else state._weights()
        if sender == GUARDIAN:
            state = self.with_ballot_deal(data)
            return state, state._weights()
        if self.ballot is not None:
            return self.with_ballot(data)
        query = HiddenQuery.decode(data, self.batch)
        own, outcomes = self._outcomes(query, self.deal)
        state, outbox = self.compared(outcomes)
        return state, (Outgoing(QUERIER, MaskedOutcome(own)), *outbox)

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
        masked = first_round(own, self.batch) + deal.keys.masks.reshape(query.masked.shape)
        return masked, deal.signs(masked + query.masked, 1)


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
    require_noise_and_secrets(batch, name, noise, secrets)
    state = SiteBatch(batch=batch, name=name, model=model, noise=noise, secrets=secrets)
    return state, last_deals(batch, name, rng)
