"""What campaigns take of a data set's blocks, added up entry by entry.

A hold adds its shares; an end takes them back and adds what was used. Amounts are whole numbers, so
that a total is the same however it came about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpal.accounting.renyi_filter import NOTHING, Amount
from dpal.canonical import canonical_json
from dpal.ledger.data_set_accounts import (
    Basis,
    BlockShare,
    Limit,
    data_sets,
    lost_entries,
    shares_in,
)
from dpal.ledger.entries import Entry, EntryKind


@dataclass(frozen=True)
class BlockTotal:
    """What all holds and ends together take of one block.

    Attributes:
      amount: at the data set's order.
      campaigns: how many take something.
      whole: how many of them took it whole.
    """

    amount: Amount = NOTHING
    campaigns: int = 0
    whole: int = 0

    def with_share(self, share: BlockShare, times: int) -> BlockTotal:
        """The same with one share more (1), or less (-1)."""
        change = Amount(times * share.amount.divergence, times * share.amount.overflow)
        whole = self.whole + times * (share.basis is Basis.SOLE)
        return BlockTotal(self.amount + change, self.campaigns + times, whole)


Totals = Mapping[int, BlockTotal]


def totals_after(before: str, entry: Entry, held: Entry | None) -> str:
    """Totals with one more hold or end, as text.

    Args:
      before: without it; empty for none.
      entry: a hold or an end.
      held: for an end, the campaign's hold.
    """
    totals = dict(totals_in(before))
    ends = entry.kind is EntryKind.END
    back = shares_in(held.body) if ends and held is not None else ()
    more = [
        share for share in shares_in(entry.body) if not (ends and share.amount == NOTHING)
    ]  # of which all flowed back
    for times, shares in ((-1, back), (1, more)):
        for share in shares:
            totals[share.block] = totals.get(share.block, BlockTotal()).with_share(share, times)
    return canonical_json(
        {
            str(block): [
                total.amount.divergence, total.amount.overflow, total.campaigns, total.whole
            ]
            for block, total in totals.items()
        }
    )  # fmt: skip


def totals_in(text: str) -> Totals:
    """Reads what `totals_after` wrote."""
    return {
        int(block): BlockTotal(Amount(divergence, overflow), campaigns, whole)
        for block, (divergence, overflow, campaigns, whole) in json.loads(text or "{}").items()
    }


def plainly_fit(
    about: Sequence[Entry], name: str, totals: Totals, shares: Sequence[BlockShare]
) -> bool:
    """Whether shares fit by the totals alone; where not, or not plainly, all entries must say.

    Args:
      about: entries of the data set and those by which lost entries are known; no holds.
      name: of the data set.
      totals: of all holds and ends.
      shares: that a campaign asks for.
    """
    if lost_entries(about) is not None or name not in data_sets(about):
        return False
    if any(entry.kind is EntryKind.BLOCK and entry.body.get("earlier") for entry in about):
        return False
    registered = data_sets(about)[name]
    return all(
        share.block < len(registered.blocks)
        and _fits(share, totals.get(share.block, BlockTotal()), registered.limit)
        for share in shares
    )


def _fits(share: BlockShare, total: BlockTotal, limit: Limit) -> bool:
    if share.basis is Basis.SOLE:
        return total.campaigns == 0 and share.epsilon <= limit.filter.epsilon
    return total.whole == 0 and share.amount.within(limit.filter.limit - total.amount)
