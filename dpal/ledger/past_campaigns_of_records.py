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
from dpal.ledger.attempt_names import planned_name
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.release_json import release_from, release_of
from dpal.privacy import Adjacency, Unit

RENYI, SOLE = "renyi", "sole"


@dataclass(frozen=True, kw_only=True)
class PastCampaigns:
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
    planned = _planned(next(entry for entry in own if entry.kind is EntryKind.HOLD).body)
    reserved = [release_of(entry) for entry in own if entry.kind is EntryKind.RESERVE] + [*further]
    if not any(entry.kind is EntryKind.END for entry in own):
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
    held = {entry.campaign: entry.body for entry in entries if entry.kind is EntryKind.HOLD}
    named = ", ".join(campaigns)
    asked = [held[campaign] for campaign in campaigns]
    if why := _uncountable(asked, held, campaigns, adjacency, unit):
        raise LedgerError(
            f"{named} spent on these records without a data set, and {why}; nothing was "
            f"registered or released, register other records as {name}"
        )
    try:
        taken = [charge_of_earlier(entries, campaign, limit, adjacency) for campaign in campaigns]
        planned = limit.charge(_planned(held[campaigns[0]]), adjacency)
    except ParameterError as error:
        raise LedgerError(
            f"{named} spent on these records without a data set, and that has no finite Renyi "
            f"divergence; nothing was registered or released, register other records as {name}"
        ) from error
    promise = held[campaigns[0]]
    alike = promise["adjacency"] == adjacency.value and promise["delta"] <= limit.delta
    alone = len(campaigns) == 1 and alike and promise["epsilon"] <= limit.epsilon
    # By the whole plan: how it is bounded must not depend on what it released.
    if alone and not planned.within(limit.limit):
        return [{"campaign": campaigns[0], "basis": SOLE}]
    total = sum(taken, start=NOTHING)
    if total.within(limit.limit):
        return [{"campaign": campaign, "basis": RENYI} for campaign in campaigns]
    raise LedgerError(
        f"{named} spent on these records before: together up to epsilon "
        f"{limit.epsilon_of(total):.4f} at delta {limit.delta:.3g}, as several are counted, and "
        f"data set {name} allows {limit.epsilon:g}; nothing was registered or released, register "
        "with a limit that covers it, or records that were in none of them"
    )


def unlike_promise(held: Mapping[str, Any], adjacency: Adjacency, unit: Unit) -> str:
    """Why what a campaign spent cannot be counted under a data set's promise; empty where it can.

    Noise stands in events by the sensitivity that the campaign's own adjacency has, which is no
    larger than under replace-one. Clipped sums of groups move by as much as twice their bound
    where one record of a group is blanked.

    Args:
      held: what the campaign promised.
      adjacency: of the data set.
      unit: of the data set.
    """
    if held["unit"] != unit.value:
        return f"that was promised to each {held['unit']}, and tells not what a {unit} lost"
    if held["adjacency"] not in (adjacency.value, Adjacency.REPLACE_ONE.value):
        return (
            f"that was promised under adjacency {held['adjacency']}, and tells not what is lost "
            f"under {adjacency}"
        )
    return ""


def _planned(held: Mapping[str, Any]) -> list[Release]:
    return [release_from(record) for record in held["releases"]]


def _uncountable(
    asked: Sequence[Mapping[str, Any]],
    held: Mapping[str, Mapping[str, Any]],
    campaigns: Sequence[str],
    adjacency: Adjacency,
    unit: Unit,
) -> str:
    """Why what some campaigns took cannot be added up; empty where it can."""
    if unit is Unit.GROUP:
        return "what a whole group lost by that cannot be counted"
    for body in asked:
        if why := unlike_promise(body, adjacency, unit):
            return why
        before = body.get("before")
        if before and before["declared"]:
            return "what its start spent was only declared"
        if before and before["releases"]:
            start = held.get(before["campaign"]) if before["campaign"] in campaigns else None
            made = [
                {**release, "release": planned_name(release["release"])}
                for release in before["releases"]
            ]
            if start is None or any(release not in start["releases"] for release in made):
                return "what its start spent is not in this ledger"
        charges = (charge for release in _planned(body) for charge in release.charges)
        if not all(charge.event.adds_up for charge in charges):
            return "its votes are paid for within a bound, which a sum cannot count"
    return ""
