"""The guardian's part in strict mode: it deals nothing, and adds up votes that it cannot read.

With who asks it finds noisy counts, so that these are charged. Sites vote only once they are: a
batch that ends earlier told nobody anything, and one that ends later is not begun again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dpal.capc.guardian import GuardianBatch
from dpal.capc.messages import LastDeal
from dpal.capc.party_step_helpers import Outbox, Outgoing, unexpected
from dpal.capc.strict_messages import BatchCharged, SiteReady
from dpal.capc.terms import QueryBatch


@dataclass(frozen=True, eq=False, kw_only=True)
class StrictGuardianBatch:
    """Where the guardian stands.

    Attributes:
      plain: its part that is the same as where it deals.
      ready: sites that can vote.
    """

    plain: GuardianBatch
    ready: frozenset[str] = field(default_factory=frozenset)

    @property
    def batch(self) -> QueryBatch:
        """What is asked."""
        return self.plain.batch

    @property
    def is_done(self) -> bool:
        """As `GuardianBatch.is_done`."""
        return self.plain.is_done

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come next."""
        return (frozenset(self.batch.sites) - self.ready) or self.plain.awaited

    def receive(self, sender: str, data: bytes) -> tuple[StrictGuardianBatch, Outbox]:
        """What it becomes by a message, and what it sends: that the batch is charged, its answer.

        Raises:
          ProtocolError: the message cannot come now.
        """
        unready = frozenset(self.batch.sites) - self.ready
        if not unready or sender not in self.batch.sites:
            plain, outbox = self.plain.receive(sender, data)
            return replace(self, plain=plain), outbox
        deals = sender == self.batch.dealer and not self.batch.tells_counts
        if deals and self.plain.last_deal is None:
            deal = LastDeal.decode(data, self.batch)
            return replace(self, plain=replace(self.plain, last_deal=deal)), ()
        if sender not in unready:
            raise unexpected(sender, self.awaited)
        SiteReady.decode(data, self.batch)
        state = replace(self, ready=self.ready | {sender})
        if len(unready) > 1:
            return state, ()
        return state, tuple(Outgoing(site, BatchCharged()) for site in self.batch.sites)


def begin_strict_guardian(batch: QueryBatch) -> StrictGuardianBatch:
    """Begins a batch in strict mode: nothing is dealt."""
    total = np.zeros((batch.queries, batch.rule.counts), dtype=np.uint32)
    return StrictGuardianBatch(plain=GuardianBatch(batch=batch, total=total))
