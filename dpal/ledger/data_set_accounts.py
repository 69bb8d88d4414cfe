"""Data sets, their blocks, and what campaigns have taken of each.

A data owner registers a data set with a limit. Records that arrive together are a block
and have that limit to themselves, less what was spent on them before. Every campaign on the
data set holds its worst case of every block first; what it did not use flows back when it
ends. All of it is read off the ledger's entries; nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from dpal import check
from dpal.accounting.renyi_filter import NOTHING, Amount, RenyiFilter
from dpal.errors import LedgerError
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.past_campaigns_of_records import SOLE, charge_of_earlier, unlike_promise
from dpal.privacy import Adjacency, Unit

SALT, PART = "salt", "part-"
_EARLIER_FORMATS = 2  # index files of these are Parquet; ledgers did not say which

_LOST = "entries about it may have been lost before the ledger was adopted"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What a data owner promised to everyone in a data set, over all campaigns together.

    Attributes:
      filter: epsilon, delta and the order at which campaigns are added up.
      adjacency: which change of the data the limit speaks of.
      unit: whose contribution is protected.
      group_column: names the group where the unit is one.
    """

    filter: RenyiFilter
    adjacency: Adjacency
    unit: Unit
    group_column: str | None = None

    @property
    def owner_column(self) -> str:
        """The column that says who is protected."""
        return self.group_column or "id"


class Basis(StrEnum):
    """How a campaign's part of a block is bounded.

    RENYI: by its divergence at the data set's order; others may follow.
    SOLE: by its own tight certificate; it is the first and only campaign of the block. The
      choice falls before anything is released about the block, so nothing adapts to it. Of a
      campaign that began before its records were registered, it follows from the limit and the
      plan, or, once that ended, from what it reserved.
    """

    RENYI = "renyi"
    SOLE = "sole"


@dataclass(frozen=True, kw_only=True)
class BlockShare:
    """A campaign's part in one block.

    Attributes:
      block: its number.
      size: owners of the block in the campaign's pool that take part.
      participation: factor on every sample rate of training for its records.
      basis: how it is bounded.
      amount: what it takes at the data set's order.
      epsilon: what this campaign alone costs a record of the block, at the data set's delta.
    """

    block: int
    size: int
    participation: float
    basis: Basis
    amount: Amount
    epsilon: float

    def __post_init__(self) -> None:
        check.within(0, 1, participation=self.participation)
        # No negative charges: nothing is ever given back but by an end.
        check.at_least(
            0,
            divergence=self.amount.divergence,
            overflow=self.amount.overflow,
            epsilon=self.epsilon,
        )


@dataclass(frozen=True, kw_only=True)
class BlockAccount:
    """One block and what is left of it.

    Attributes:
      block: its number.
      size: owners in it.
      taken: held by running campaigns and spent by ended ones.
      sole: the campaign that took it whole, if one did.
      alone: what the only campaign on it costs at most; None where there are others, or none.
      campaigns: all that took something, in order; first those of `earlier`.
      earlier: those that began before its records were registered; their whole plans count.
      running: those of `campaigns` that have not ended, whose end gives back what they did not
        use; none where all of the block is taken, or counts as spent, whoever ends.
      counts_as_spent: why all of it counts as spent, as entries about it may have been lost, or a
        campaign before it promised something else; empty if it does not.
    """

    block: int
    size: int
    taken: Amount = NOTHING
    sole: str | None = None
    alone: float | None = None
    campaigns: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    counts_as_spent: str = ""

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was ever taken of it."""
        return not self.campaigns and not self.counts_as_spent

    def left(self, limit: Limit) -> Amount:
        """What further campaigns may take."""
        return NOTHING if self.sole or self.counts_as_spent else limit.filter.limit - self.taken

    def epsilon_taken(self, limit: Limit) -> float:
        """The epsilon, at the limit's delta, that all campaigns on it add up to."""
        if self.counts_as_spent:
            return limit.filter.epsilon
        return limit.filter.epsilon_of(self.taken) if self.alone is None else self.alone


@dataclass(frozen=True, kw_only=True)
class IndexFile:
    """One index file of a data set as the ledger knows it.

    Attributes:
      name: of the file, in the folder of its data set.
      digest: of its bytes.
      salt: digest of the bytes under which its records are hashed.
      format: version of the file; 2 also stands for 1.
    """

    name: str
    digest: str
    salt: str
    format: int

    @property
    def has_own_salt(self) -> bool:
        """Whether only this data set has its salt; those of later formats are all under one."""
        return self.format <= _EARLIER_FORMATS


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A registered data set as the ledger knows it.

    Attributes:
      name: of the data set.
      limit: what its owner promised.
      salt: digest of the bytes under which its records were hashed when it was registered.
      index: its index files, in order.
      blocks: all of them, in order of arrival.
    """

    name: str
    limit: Limit
    salt: str
    index: tuple[IndexFile, ...]
    blocks: tuple[BlockAccount, ...]

    @property
    def files(self) -> dict[str, str]:
        """Digests of its files and their salts, by name below the folder of all data sets."""
        salts = {f"{self.name}/{SALT}" if file.has_own_salt else SALT: file.salt
                 for file in self.index}  # fmt: skip
        return salts | {f"{self.name}/{file.name}": file.digest for file in self.index}


def parts_added(entries: Iterable[Entry]) -> int:
    """How often records were added to data sets; it only grows."""
    return sum(entry.kind in (EntryKind.BLOCK, EntryKind.INDEX) for entry in entries)


def data_sets(entries: Iterable[Entry]) -> dict[str, DataSet]:
    """Reads all data sets off a ledger's entries, in order of registration."""
    entries = list(entries)
    limits: dict[str, Limit] = {}
    salts: dict[str, str] = {}
    index: dict[str, list[IndexFile]] = {}
    blocks: dict[str, list[tuple[Entry, str]]] = {}
    lost = lost_entries(entries) or 0
    for entry in entries:
        if entry.kind in (EntryKind.REGISTER, EntryKind.LIMIT):
            limits[entry.body["dataset"]] = limit_of(entry.body)
        if entry.kind is EntryKind.REGISTER:
            salts[entry.body["dataset"]] = str(entry.body["salt"])
        if entry.kind in (EntryKind.BLOCK, EntryKind.INDEX):
            name = entry.body["dataset"]
            files = index.setdefault(name, [])
            files.append(_index_file(entry.body, len(files), salts[name]))
        if entry.kind is EntryKind.BLOCK:
            begun = (entry, _LOST if entry.sequence < lost else "")
            blocks.setdefault(entry.body["dataset"], []).append(begun)
    return {
        name: DataSet(
            name=name,
            limit=limit,
            salt=salts[name],
            index=tuple(index.get(name, [])),
            blocks=tuple(
                _account(entries, name, limit, number, block, doubt=doubt)
                for number, (block, doubt) in enumerate(blocks.get(name, []))
            ),
        )
        for name, limit in limits.items()
    }


def _index_file(body: dict[str, Any], number: int, salt: str) -> IndexFile:
    kind = int(body.get("format", _EARLIER_FORMATS))
    ending = "parquet" if kind <= _EARLIER_FORMATS else "arrow"
    return IndexFile(
        name=f"{PART}{number}.{ending}",
        digest=str(body["index"]),
        salt=str(body.get("salt", salt)),
        format=kind,
    )


def lost_entries(entries: Iterable[Entry]) -> int | None:
    """Number of the last entry by which somebody went on although entries were lost, or None."""
    adopted = (
        entry for entry in entries if entry.kind is EntryKind.ADOPT and entry.body.get("despite")
    )
    return max((entry.sequence for entry in adopted), default=None)


def data_set(entries: Iterable[Entry], name: str) -> DataSet:
    """One data set.

    Raises:
      LedgerError: none of this name is registered.
    """
    registered = data_sets(entries)
    if name not in registered:
        there = ", ".join(registered) or "none is"
        raise LedgerError.before_release(
            f"data set {name} is not registered in this ledger ({there} known); register it: dpal "
            f"data register {name} POOL.parquet --epsilon 8"
        )
    return registered[name]


def register_body(name: str, limit: Limit) -> dict[str, Any]:
    """What a registration, or a changed limit, records."""
    return {
        "dataset": name,
        **asdict(limit.filter),
        "adjacency": limit.adjacency.value,
        "unit": limit.unit.value,
        "group_column": limit.group_column,
    }


def share_record(share: BlockShare) -> dict[str, Any]:
    """A share as JSON values."""
    record = asdict(share)
    amount = record.pop("amount")
    return {**record, **amount, "basis": share.basis.value}


def share_of(record: dict[str, Any]) -> BlockShare:
    """Reads a share."""
    return BlockShare(
        block=record["block"],
        size=record["size"],
        participation=record["participation"],
        basis=Basis(record["basis"]),
        amount=Amount(record["divergence"], record["overflow"]),
        epsilon=record["epsilon"],
    )


def shares_in(body: dict[str, Any]) -> tuple[BlockShare, ...]:
    """The shares that stand in a hold or an end; none where no data set is registered."""
    data = body.get("data")
    return tuple(share_of(record) for record in data["blocks"]) if data else ()


def limit_of(body: dict[str, Any]) -> Limit:
    """Reads the limit of a registration."""
    return Limit(
        filter=RenyiFilter(epsilon=body["epsilon"], delta=body["delta"], order=body["order"]),
        adjacency=Adjacency(body["adjacency"]),
        unit=Unit(body["unit"]),
        group_column=body["group_column"],
    )


def _account(
    entries: Sequence[Entry],
    name: str,
    limit: Limit,
    number: int,
    block: Entry,
    *,
    doubt: str,
) -> BlockAccount:
    """Adds up what was spent before, and holds, or, for ended campaigns, what they used."""
    taken, sole, alone, campaigns = NOTHING, None, 0.0, []
    counted: list[str] = []
    promised = {entry.campaign: entry.body for entry in entries if entry.kind is EntryKind.HOLD}
    for earlier in block.body.get("earlier", ()):
        campaign = str(earlier["campaign"])
        amount = charge_of_earlier(entries, campaign, limit.filter, limit.adjacency)
        if amount == NOTHING:
            continue  # it ended before it released anything
        # Versions up to 0.2.0 counted it all the same.
        if why := unlike_promise(promised[campaign], limit.adjacency, limit.unit):
            doubt = f"{campaign} spent on it before it was registered; {why}"
        counted.append(campaign)
        campaigns.append(campaign)
        taken, alone = taken + amount, limit.filter.epsilon_of(amount)
        if earlier["basis"] == SOLE:
            sole, alone = campaign, float(promised[campaign]["epsilon"])
    ended = {entry.campaign: entry for entry in entries if entry.kind is EntryKind.END}
    for entry in entries:
        data = entry.body.get("data") if entry.kind is EntryKind.HOLD else None
        if not data or data["name"] != name:
            continue
        final = ended.get(entry.campaign)
        for share in shares_in((final or entry).body):
            if share.block != number or (final and share.amount == NOTHING):
                continue
            campaigns.append(entry.campaign)
            taken, alone = taken + share.amount, share.epsilon
            if share.basis is Basis.SOLE:
                sole = entry.campaign
    return BlockAccount(
        block=number,
        size=int(block.body["size"]),
        taken=taken,
        sole=sole,
        alone=alone if len(campaigns) == 1 else None,
        campaigns=tuple(campaigns),
        earlier=tuple(counted),
        running=()
        if sole or doubt
        else tuple(campaign for campaign in campaigns if campaign not in ended),
        counts_as_spent=doubt,
    )
