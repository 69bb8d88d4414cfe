"""The part of who asks in a batch whose outcomes it and the sites hold in shares already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dpal.capc.messages import SharesCounted, SiteBegins, WantedShares
from dpal.capc.party_step_helpers import Outbox, Outgoing, unexpected
from dpal.capc.precomputed_shares import SharedQueries
from dpal.capc.querier_votes import QuerierVotes, require_secrets
from dpal.capc.terms import GUARDIAN, QueryBatch
from dpal.errors import ParameterError


@dataclass(frozen=True, eq=False, kw_only=True)
class SharesQuerierBatch(QuerierVotes):
    """Where who asks stands.

    Attributes:
      asked: the queries, and its shares of what sites' models say to them.
      begun: sites that have begun the batch, and so were told which shares are counted.
      voted: sites that have voted by them, where there is no second round.
    """

    asked: SharedQueries
    begun: frozenset[str] = field(default_factory=frozenset)
    voted: frozenset[str] = field(default_factory=frozenset)

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come next."""
        if self.answers is not None:
            return frozenset()
        if self.margin is not None or self.lacks_ballot_deal:
            return frozenset({GUARDIAN})
        came = self.voted if self.batch.rule.second is None else self.ballots.keys()
        missing = set(self.batch.sites) - came
        return frozenset(missing | ({self.batch.dealer} if self.lacks_last_deal else set()))

    def receive(self, sender: str, data: bytes) -> tuple[SharesQuerierBatch, Outbox]:
        """What it becomes by a message, and what it sends.

        Raises:
          ProtocolError: the message cannot come now.
        """
        if self.answers is not None:
            raise unexpected(sender, self.awaited)
        if sender == GUARDIAN and self.margin is not None:
            return self.released(data), ()
        if sender == GUARDIAN and self.lacks_ballot_deal:
            return self.with_ballot_deal(data)._with_margin()
        if sender == self.batch.dealer and self.lacks_last_deal:
            return self.with_last_deal(data)._with_margin()
        if sender in self.batch.sites and sender not in self.begun:
            SiteBegins.decode(data, self.batch)
            state = replace(self, begun=self.begun | {sender})
            return state, (Outgoing(sender, self._wanted(sender)),)
        if self.batch.rule.second is None and sender in self.begun - self.voted:
            SharesCounted.decode(data, self.batch)
            return replace(self, voted=self.voted | {sender})._with_margin()
        if self.batch.rule.second is not None and sender in self.begun - self.ballots.keys():
            return self.with_ballot(sender, data)._with_margin()
        raise unexpected(sender, self.awaited)

    def _wanted(self, site: str) -> WantedShares:
        evaluation = np.frombuffer(self.asked.held[site].evaluation, np.uint8)
        return WantedShares(evaluation, self.asked.rows)

    def _with_margin(self) -> tuple[SharesQuerierBatch, Outbox]:
        """Its share of the noisy counts, or margins, once nothing is missing."""
        if self.awaited:
            return self, ()
        held = [self.asked.held[site].values[self.asked.rows] for site in self.batch.sites]
        return self.compared(np.stack(held))


def begin_shares_querier(
    batch: QueryBatch, asked: SharedQueries, secrets: Mapping[str, bytes]
) -> SharesQuerierBatch:
    """Who asks begins a batch.

    Args:
      batch: what is asked, under a number that this session has not had (`require_new`).
      asked: the queries, and shares of what every site of the batch says to them.
      secrets: of the session, with every site of the batch.

    Raises:
      ParameterError: queries, shares or secrets do not fit the batch.
    """
    if len(asked) != batch.queries:
        raise ParameterError.before_release(
            f"{batch.queries} queries were announced, and {len(asked)} are asked"
        )
    asked.require_sites(batch.sites, batch.labels)
    require_secrets(batch, secrets)
    return SharesQuerierBatch(batch=batch, asked=asked, secrets=secrets)
