"""What a site does with its shares of outcomes, however it came by them: a second round, its vote.

Nobody learns its votes: to the guardian, which made its keys, its share of a vote would tell the
very outcome (`dpal.capc.shared_signs`), so that it never leaves without the pad that only the site
and who asks can draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpal.capc.key_streams import fresh_seed
from dpal.capc.messages import LastDeal, MaskedBallot, PaddedVotes, SiteBallotDeal, dealt_fields
from dpal.capc.party_step_helpers import (
    Outbox,
    Outgoing,
    ballot_shares,
    pad,
    second_round,
    unexpected,
)
from dpal.capc.ring import Ring, to_ring
from dpal.capc.shared_signs import deal_signs, sign_keys
from dpal.capc.terms import GUARDIAN, QUERIER, QueryBatch
from dpal.errors import ParameterError
from dpal.randomness import BitSource


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteVotes:
    """Where a site stands, but for how it comes by shares of outcomes.

    Attributes:
      batch: what is asked.
      name: of the site.
      noise: (queries, counts) its share of the noise, from `noise_share`; private.
      secrets: of the session, with who asks and with every other site.
      ballot_deal: from the guardian, once it came; none where there is no second round.
      outcomes: (queries, outcomes) its share of what the first of two rounds found; private.
      ballot: (queries, compared) its share of what is compared in the second round, masked.
      is_done: whether it answered.
    """

    batch: QueryBatch
    name: str
    noise: NDArray[np.int64]
    secrets: Mapping[str, bytes]
    ballot_deal: SiteBallotDeal | None = None
    outcomes: Ring | None = None
    ballot: Ring | None = None
    is_done: bool = False

    @property
    def lacks_ballot_deal(self) -> bool:
        """Whether the guardian's keys of the second round have not come."""
        return self.batch.rule.second is not None and self.ballot_deal is None

    def with_ballot_deal(self, data: bytes) -> Self:
        """What it becomes by the guardian's keys of the second round."""
        return replace(self, ballot_deal=SiteBallotDeal.decode(data, self.batch))

    def compared(self, outcomes: Ring) -> tuple[Self, Outbox]:
        """What it becomes by its shares of the outcomes, and what it sends: its vote, or a ballot.

        Args:
          outcomes: (queries, outcomes).
        """
        if self.ballot_deal is None:
            return self.voted(outcomes)
        ballot = second_round(outcomes, self.batch, constants=False)
        ballot += self.ballot_deal.keys.masks.reshape(ballot.shape)
        state = replace(self, outcomes=outcomes, ballot=ballot)
        return state, (Outgoing(QUERIER, MaskedBallot(ballot)),)

    def with_ballot(self, data: bytes) -> tuple[Self, Outbox]:
        """What it becomes by who asks' share of the second round: it votes.

        Raises:
          ProtocolError: this cannot come now.
        """
        if self.ballot is None or self.ballot_deal is None or self.outcomes is None:
            raise unexpected(QUERIER, ())
        other = MaskedBallot.decode(data, self.batch).values
        found = self.ballot_deal.signs(self.ballot + other, 1)
        return self.voted(ballot_shares(self.outcomes, found, self.batch))

    def voted(self, votes: Ring) -> tuple[Self, Outbox]:
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


def require_noise_and_secrets(
    batch: QueryBatch, name: str, noise: NDArray[np.int64], secrets: Mapping[str, bytes]
) -> None:
    """Requires what every site brings to a batch.

    Raises:
      ParameterError: the noise or the secrets do not fit it.
    """
    if noise.shape != (batch.queries, batch.rule.counts):
        raise ParameterError.before_release("noise is needed for each count of the batch")
    if name not in batch.sites or {QUERIER, *batch.sites} - {name} - secrets.keys():
        raise ParameterError.before_release(f"{name} has no secret with a party of the batch")


def last_deals(batch: QueryBatch, name: str, rng: BitSource) -> Outbox:
    """Keys by which who asks and the guardian compare counts that neither knows.

    Args:
      batch: that begins.
      name: of the site; nothing is dealt by one whose turn it is not, nor where counts are
        released.
      rng: source of the keys.
    """
    if batch.tells_counts or name != batch.dealer:
        return ()
    seeds, salt = (fresh_seed(rng), fresh_seed(rng)), fresh_seed(rng)
    first, second = (sign_keys(seed, "signs", batch.counted) for seed in seeds)
    corrections, shape = deal_signs(first, second, salt), (batch.queries, batch.rule.counts)
    return tuple(
        Outgoing(receiver, LastDeal(**dealt_fields(seed, salt, corrections, *shape)))
        for receiver, seed in zip((QUERIER, GUARDIAN), seeds, strict=True)
    )
