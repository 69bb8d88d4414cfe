"""What the campaigns on one data set did, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dpal.accounting.renyi_filter import NOTHING
from dpal.ledger.data_set_accounts import Basis, BlockAccount, DataSet, data_set
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.past_campaigns_of_records import charge_of_earlier


@dataclass(frozen=True, kw_only=True)
class BlockCharge:
    """What one campaign takes of one block.

    Attributes:
      campaign: its name.
      block: number of the block.
      size: its owners that take part in the campaign.
      participation: factor on every sample rate of training for them.
      basis: how it is bounded.
      epsilon: what this campaign alone costs one of them, at the data set's delta.
      share: of the block's whole budget. Shares add up over campaigns; epsilons do not.
      ended: whether it is spent, and no longer merely held.
    """

    campaign: str
    block: int
    size: int
    participation: float
    basis: Basis
    epsilon: float
    share: float
    ended: bool


def dataset_of(entries: Iterable[Entry], campaign: str) -> str | None:
    """Name of the data set that a campaign holds a part of; None where it holds none."""
    for entry in entries:
        if entry.kind is EntryKind.HOLD and entry.campaign == campaign:
            hold = DataHold.of_entry(entry)
            return None if hold is None else hold.dataset
    return None


def history(entries: Sequence[Entry], campaign: str) -> list[Entry]:
    """All that has to do with a campaign, in order.

    Its own entries, those of its data set and of every other campaign on that data set,
    and those about the ledger itself.
    """
    name = dataset_of(entries, campaign)
    campaigns = {campaign}
    if name is not None:
        campaigns |= {holder for holder in _holders(entries) if dataset_of(entries, holder) == name}
        campaigns |= {
            earlier for block in data_set(entries, name).blocks for earlier in block.earlier
        }
    return [
        entry
        for entry in entries
        if entry.campaign in campaigns
        or entry.kind in (EntryKind.OPEN, EntryKind.ADOPT)
        or (not entry.campaign and name is not None and entry.body.get("dataset") == name)
    ]


def parts_of(entries: Sequence[Entry], name: str) -> tuple[BlockCharge, ...]:
    """What campaigns take of a data set's blocks, in order of their holds.

    Raises:
      LedgerError: no data set of this name is registered.
    """
    registered = data_set(entries, name)
    whole = registered.limit.filter.limit.divergence
    ends = {entry.campaign: entry for entry in entries if entry.kind is EntryKind.END}
    parts = [
        part
        for account in registered.blocks
        for part in _earlier_parts(entries, registered, account)
    ]
    for campaign in _holders(entries):
        if dataset_of(entries, campaign) != name:
            continue
        final = ends.get(campaign)
        held = next(e for e in entries if e.kind is EntryKind.HOLD and e.campaign == campaign)
        data = DataHold.of_entry(final or held)
        for share in data.shares if data else ():
            if final and share.amount == NOTHING:
                continue  # all of it flowed back
            used = share.amount.divergence / whole if whole else 0.0
            parts.append(
                BlockCharge(
                    campaign=campaign,
                    block=share.block,
                    size=share.size,
                    participation=share.participation,
                    basis=share.basis,
                    epsilon=share.epsilon,
                    share=1.0 if share.basis is Basis.SOLE else used,
                    ended=final is not None,
                )
            )
    return tuple(parts)


def _earlier_parts(
    entries: Sequence[Entry], registered: DataSet, account: BlockAccount
) -> Iterator[BlockCharge]:
    """What a block counts of campaigns that began before its records were registered."""
    limit, whole = registered.limit.filter, registered.limit.filter.limit.divergence
    for campaign in account.earlier:
        amount = charge_of_earlier(entries, campaign, limit, registered.limit.adjacency)
        sole = account.sole == campaign
        yield BlockCharge(
            campaign=campaign,
            block=account.block,
            size=account.size,
            participation=1.0,
            basis=Basis.SOLE if sole else Basis.RENYI,
            epsilon=account.epsilon_taken(registered.limit) if sole else limit.epsilon_of(amount),
            share=1.0 if sole else (amount.divergence / whole if whole else 0.0),
            ended=any(
                entry.kind is EntryKind.END and entry.campaign == campaign for entry in entries
            ),
        )


def _holders(entries: Iterable[Entry]) -> list[str]:
    return [entry.campaign for entry in entries if entry.kind is EntryKind.HOLD]
