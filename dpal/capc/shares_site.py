"""A site's part in a batch whose outcomes it and who asks hold in shares already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.capc.messages import SharesCounted, SiteBegins, WantedShares
from dpal.capc.party_step_helpers import Outbox, Outgoing, unexpected
from dpal.capc.precomputed_shares import HeldShares
from dpal.capc.ring import Ring
from dpal.capc.site_vote_shares import SiteVotes, last_deals, require_noise_and_secrets
from dpal.capc.terms import GUARDIAN, QUERIER, QueryBatch
from dpal.errors import ProtocolError
from dpal.randomness import BitSource


@dataclass(frozen=True, eq=False, kw_only=True)
class SharesSiteBatch(SiteVotes):
    """Where a site stands.

    Attributes:
      held: its shares, by evaluation; private.
    """

    held: Mapping[bytes, HeldShares]

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come before it is done."""
        if self.is_done:
            return frozenset()
        return frozenset({GUARDIAN if self.lacks_ballot_deal else QUERIER})

    def receive(self, sender: str, data: bytes) -> tuple[SharesSiteBatch, Outbox]:
        """What it becomes by a message, and what it sends.

        Raises:
          ProtocolError: the message cannot come now, or asks for shares that are not here.
        """
        if sender not in self.awaited:
            raise unexpected(sender, self.awaited)
        if sender == GUARDIAN:
            return self.with_ballot_deal(data), _begins()
        if self.ballot is not None:
            return self.with_ballot(data)
        state, outbox = self.compared(self._outcomes(WantedShares.decode(data, self.batch)))
        told = (Outgoing(QUERIER, SharesCounted()),) if state.is_done else ()
        return state, (*outbox, *told)

    def _outcomes(self, wanted: WantedShares) -> Ring:
        evaluation = wanted.evaluation.tobytes()
        held = self.held.get(evaluation)
        if held is None:
            raise ProtocolError(
                f"{self.name} has no shares of the evaluation {evaluation.hex()[:8]} that who asks "
                "names; let both use the files of one run of dpal capc cnn"
            )
        if held.values.shape[1] != self.batch.labels or wanted.rows.max() >= len(held.values):
            raise ProtocolError(
                f"shares of {self.name} are of {held.values.shape[1]:,} labels and "
                f"{len(held.values):,} queries, and others are asked for"
            )
        return np.asarray(held.values[wanted.rows])


def begin_shares_site(
    batch: QueryBatch,
    name: str,
    held: Mapping[bytes, HeldShares],
    noise: NDArray[np.int64],
    secrets: Mapping[str, bytes],
    *,
    rng: BitSource,
) -> tuple[SharesSiteBatch, Outbox]:
    """A site begins a batch; arguments and errors as of `dpal.capc.site.begin_site`.

    Args:
      batch: what is asked.
      name: of the site.
      held: its shares, by evaluation, in place of a model.
      noise: its share of the noise.
      secrets: of the session.
      rng: source of the last comparison's keys.
    """
    require_noise_and_secrets(batch, name, noise, secrets)
    state = SharesSiteBatch(batch=batch, name=name, held=held, noise=noise, secrets=secrets)
    begins = () if state.lacks_ballot_deal else _begins()
    return state, (*last_deals(batch, name, rng), *begins)


def _begins() -> Outbox:
    """It can be asked: nothing of the guardian's is missing."""
    return (Outgoing(QUERIER, SiteBegins()),)
