"""What was spent on records before they were registered, counted by the block they became.

A campaign that began without a data set goes on as it was planned: its plan is in the ledger, so
that all it may still release is known when its records are registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.accounting.events import Release
from dpal.accounting.renyi_filter import NOTHING, Amount, RenyiFilter
from dpal.errors import LedgerError, ParameterError
from dpal.ledger.entries import Entry, Kind
from dpal.ledger.releases import release_from, release_of
from dpal.privacy import Adjacency, Unit

RENYI, SOLE = "renyi", "sole"


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What is known of campaigns without a data set that some new records were in.

    Attributes:
      campaigns: that were about one of them; all they took, and may still take, counts.
      apart: those of which nothing shows what they were about, and why they were about other
        people, as the data owner says; None for none. Stands in the ledger.
    """

    campaigns: Sequence[str] = ()
    apart: Mapping[str, Any] | None = None


def charge_of_earlier(
    entries: Iterable[Entry],
    campaign: str,
    limit: RenyiFilter,
    adjacency: Adjacency,
    *,
    further: Sequence[Release] = (),
) -> Amount:
    """What a campaign took, and may still take, of every record of a block.

    Args:
      entries: of the ledger.
      campaign: that holds a plan and no data set.
      limit: of the data set.
      adjacency: of the data set.
      further: releases that it is about to reserve.
    """
    own = [entry for entry in entries if entry.campaign == campaign]
    held = next(entry for entry in own if entry.kind is Kind.HOLD)
    planned = [release_from(record) for record in held.body["releases"]]
    reserved = [release_of(entry) for entry in own if entry.kind is Kind.RESERVE] + [*further]
    if not any(entry.kind is Kind.END for entry in own):
        names = {release.name for release in planned}
        reserved = planned + [release for release in reserved if release.name not in names]
    return limit.charge_of_ended(planned, reserved, adjacency) if reserved else NOTHING


def counted(
    entries: Sequence[Entry],
    campaigns: Sequence[str],
    name: str,
    limit: RenyiFilter,
    *,
    adjacency: Adjacency,
    unit: Unit,
) -> list[dict[str, Any]]:
    """How a new block counts the campaigns that its records were in; for the block's entry.

    Args:
      entries: of the ledger.
      campaigns: that hold plans on these records, and no data set.
      name: of the data set.
      limit: of the data set.
      adjacency: of the data set.
      unit: of the data set.

    Raises:
      LedgerError: they took more than the limit, or what they took cannot be counted.
    """
    if not campaigns:
        return []
    held = {one.campaign: one.body for one in entries if one.kind is Kind.HOLD}
    named = ", ".join(campaigns)
    before = [held[one]["before"] for one in campaigns if held[one].get("before")]
    if unit is Unit.GROUP or any(one["declared"] for one in before):
        why = "of whole groups" if unit is Unit.GROUP else "from a spending that was only declared"
        raise LedgerError(
            f"{named} spent on these records without a data set, and what that is {why} cannot be "
            f"counted; nothing was registered or released, register other records as {name}"
        )
    try:
        amounts = [charge_of_earlier(entries, one, limit, adjacency) for one in campaigns]
    except ParameterError as error:
        raise LedgerError(
            f"{named} spent on these records without a data set, and that has no finite Renyi "
            f"divergence; nothing was registered or released, register other records as {name}"
        ) from error
    total = sum(amounts, start=NOTHING)
    if total.within(limit.limit):
        return [{"campaign": one, "basis": RENYI} for one in campaigns]
    promise = held[campaigns[0]]
    alike = promise["adjacency"] == adjacency.value and promise["delta"] <= limit.delta
    if len(campaigns) == 1 and alike and promise["epsilon"] <= limit.epsilon:
        return [{"campaign": campaigns[0], "basis": SOLE}]
    raise LedgerError(
        f"{named} spent on these records before: together up to epsilon "
        f"{limit.epsilon_of(total):.4f} at delta {limit.delta:.3g}, as several are counted, and "
        f"data set {name} allows {limit.epsilon:g}; nothing was registered or released, register "
        "with a limit that covers it, or records that were in none of them"
    )
