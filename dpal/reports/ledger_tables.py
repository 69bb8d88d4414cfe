"""The ledger as tables: by cohort, by time, and what is left of data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.accounting.events import to_record
from dpal.ledger.account import CampaignAccount
from dpal.ledger.datasets import DataSet, Limit
from dpal.ledger.entries import Entry
from dpal.ledger.history import Part
from dpal.reports.ledger_words import (
    COUNTED,
    STATES,
    about,
    actor,
    cohorts_in_words,
    in_words,
    mechanism_in_words,
    when,
)
from dpal.reports.report import Table
from dpal.reports.summary import promise


def promised_in(account: CampaignAccount) -> dict[str, Any]:
    """What a campaign promised, under the keys of a plan's summary."""
    target = account.target
    return {
        "target_epsilon": target.epsilon,
        "delta": target.delta,
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
    }


def promise_of(account: CampaignAccount) -> str:
    """The same in one sentence."""
    return promise(promised_in(account))


def limit_in_words(limit: Limit) -> str:
    """A data set's limit with everything that belongs to an epsilon."""
    group = f" ({limit.group_column})" if limit.group_column else ""
    return (
        f"epsilon {limit.filter.epsilon:g} at delta {limit.filter.delta:.3g}, adjacency "
        f"{limit.adjacency}, unit {limit.unit}{group}, over all campaigns together"
    )


def cohorts_table(account: CampaignAccount) -> Table:
    """What each cohort has spent, and any record on whatever path."""
    rows = [
        (
            one.cohort.replace("_", " "),
            f"{one.selection_epsilon:.4f}",
            f"{one.epsilon_rdp:.4f}",
            f"{one.epsilon_pld:.4f}",
        )
        for one in account.cohorts
    ]
    whole = f"{account.epsilon:.4f}"
    by_rdp = account.accountant.value == "rdp"
    rows.append(("any path", "-", whole if by_rdp else "-", "-" if by_rdp else whole))
    columns = ("cohort", "selection", "epsilon (RDP)", "epsilon (PLD)")
    return Table("Epsilon by cohort, as the ledger adds it up", columns, tuple(rows))


def releases_table(account: CampaignAccount) -> Table:
    """Every release, with its mechanisms and whom they charge."""
    rows = []
    for one in account.releases:
        for charge in one.release.charges:
            mechanism, parameters = mechanism_in_words(to_record(charge.event))
            rows.append(
                (
                    str(one.sequence),
                    one.release.name,
                    STATES[one.state],
                    cohorts_in_words(list(charge.cohorts)),
                    mechanism,
                    parameters,
                )
            )
    columns = ("entry", "release", "state", "about", "mechanism", "parameters")
    return Table("Releases", columns, tuple(rows))


def time_table(entries: Sequence[Entry], so_far: Mapping[int, float]) -> Table:
    """Every entry in order, a line each.

    Args:
      entries: of one campaign or of many.
      so_far: by an entry's number, its campaign's epsilon once it stood.
    """
    rows = tuple(
        (
            str(entry.sequence),
            when(entry.recorded_at),
            actor(entry),
            in_words(entry),
            about(entry) or "-",
            f"{so_far[entry.sequence]:.4f}" if entry.sequence in so_far else "",
        )
        for entry in entries
    )
    columns = ("entry", "day (UTC)", "who", "what", "about", "epsilon")
    return Table("Entries, the last column is the campaign's epsilon so far", columns, rows)


def blocks_table(known: DataSet) -> Table:
    """What is taken and left of each block."""
    whole = known.limit.filter.limit.divergence
    rows = tuple(
        (
            str(one.block),
            f"{one.size:,}",
            f"{one.epsilon_taken(known.limit):.4f}",
            f"{100 * one.left(known.limit).divergence / whole:.1f}%" if whole else "0.0%",
            ", ".join(one.campaigns) or "-",
        )
        for one in known.blocks
    )
    columns = ("block", "size", "epsilon taken", "share left", "by")
    return Table(f"Data set {known.name}, block by block", columns, rows)


def parts_table(name: str, parts: Sequence[Part]) -> Table:
    """What each campaign takes of each block, in order of the campaigns."""
    rows = tuple(
        (
            str(one.block),
            one.campaign,
            "spent" if one.ended else "held",
            f"{one.size:,}",
            f"{100 * one.participation:.1f}%",
            f"{one.epsilon:.4f}",
            f"{100 * one.share:.1f}%",
            COUNTED[one.basis],
        )
        for one in sorted(parts, key=lambda one: one.block)
    )
    columns = (
        "block",
        "campaign",
        "state",
        "size",
        "takes part",
        "epsilon alone",
        "of it",
        "counted",
    )
    return Table(f"Data set {name}, campaign by campaign", columns, rows)


def numbers_of(parts: Sequence[Part]) -> dict[str, int]:
    """A number for each campaign on a data set, in order of their holds: its color."""
    return {name: at for at, name in enumerate(dict.fromkeys(part.campaign for part in parts))}


def entry_record(entry: Entry, so_far: Mapping[int, float]) -> dict[str, Any]:
    """An entry in words as one JSON object."""
    return {
        "sequence": entry.sequence,
        "recorded_at": entry.recorded_at,
        "campaign": entry.campaign,
        "kind": entry.kind.value,
        "release": entry.release,
        "who": actor(entry),
        "what": in_words(entry),
        "about": about(entry),
        "epsilon_so_far": so_far.get(entry.sequence),
        "digest": entry.digest,
    }
