"""The ledger as tables: by cohort, by time, and what is left of data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpal.accounting.events import to_record
from dpal.accounting.prior_spend import total_epsilon
from dpal.ledger.campaign_account import CampaignAccount, State
from dpal.ledger.data_set_accounts import DataSet, Limit
from dpal.ledger.data_set_history import BlockCharge
from dpal.ledger.entries import Entry
from dpal.reports.charts import style_of
from dpal.reports.ledger_words import (
    COUNTED,
    STATES,
    about,
    actor,
    cohorts_in_words,
    describe_entry,
    mechanism_in_words,
    when,
)
from dpal.reports.plan_and_phase_tables import above_the_promise, promise, spent_table
from dpal.reports.report import Bar, Table, spent_bar, table
from dpal.reports.validation_figures import percent

_BLOCKS = ("block", "size", "epsilon taken", "share left", "by")
_PARTS = ("block", "campaign", "state", "size", "takes part", "epsilon alone", "of it", "counted")


def promised_in(account: CampaignAccount) -> dict[str, Any]:
    """What a campaign promised, under the keys of a plan's summary."""
    target = account.target
    return {
        "target_epsilon": target.epsilon,
        "delta": target.delta,
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "accountant": account.accountant.value,
    }


def account_promise(account: CampaignAccount) -> str:
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
    spent = {
        "cohorts": [vars(cohort) for cohort in account.cohorts],
        "campaign_epsilon": account.epsilon,
    }
    return spent_table(spent, promised_in(account))


def above_in(account: CampaignAccount) -> str | None:
    """What it means that a cohort's figure passes a promise that is kept; None if none does."""
    cohorts = [vars(cohort) for cohort in account.cohorts]
    return above_the_promise(cohorts, promised_in(account), whole=account.epsilon)


def releases_table(account: CampaignAccount) -> Table:
    """Every release, with its mechanisms and whom they charge."""
    rows = [
        (
            str(reservation.sequence),
            reservation.release.name,
            STATES[reservation.state],
            cohorts_in_words(list(charge.cohorts)),
            *mechanism_in_words(to_record(charge.event)),
        )
        for reservation in account.releases
        for charge in reservation.release.charges
    ]
    columns = ("entry", "release", "state", "about", "mechanism", "parameters")
    return Table("Releases", columns, tuple(rows))


def short_table(account: CampaignAccount, so_far: Mapping[int, float]) -> Table:
    """What was released when, what it charged, what that comes to, and what is left: for a glance.

    Args:
      account: of a run.
      so_far: from `epsilons_so_far`: by an entry's number, the run's epsilon once it stood.
    """
    promised, total, rows, bars = account.target.epsilon, 0.0, [], []
    if account.before is not None:
        total = total_epsilon(account.before, [], account.target, accountant=account.accountant)
        rows.append(("before this run", "-", "spent", total, total))
    for reservation in account.releases:
        before, total = total, so_far[reservation.sequence]
        under_way = reservation.state is State.RESERVE and reservation.steps_on_disk
        state = STATES[reservation.state] + (
            f", {reservation.steps_on_disk:,} steps on disk" if under_way else ""
        )
        day = when(reservation.recorded_at)
        rows.append((reservation.release.name, day, state, total - before, total))
    if account.ended is not None and account.epsilon > total:
        # It ended by its own rule: all that it could have released counts.
        day = when(account.last.recorded_at)
        rows.append(("its end", day, "spent", account.epsilon - total, account.epsilon))
    told = []
    for what, day, state, charge, reached in rows:
        left = max(0.0, promised - reached)
        told.append((what, day, state, f"{charge:.4f}", f"{reached:.4f}", f"{left:.4f}"))
        bars.append(spent_bar(reached, promised))
    return Table(
        f"What was spent of epsilon {promised:g}, and what is left",
        ("what", "day (UTC)", "state", "charge", "total", "left"),
        tuple(told),
        bars=tuple(bars),
        bars_title="total, any path",
        badge="state",
    )


def time_table(entries: Sequence[Entry], so_far: Mapping[int, float]) -> Table:
    """Every entry in order, a line each.

    Args:
      entries: of one campaign or of many.
      so_far: by an entry's number, its campaign's epsilon once it stood.
    """
    rows = (
        {
            "entry": entry.sequence,
            "day (UTC)": when(entry.recorded_at),
            "who": actor(entry),
            "what": describe_entry(entry),
            "about": about(entry) or "-",
            "epsilon": f"{so_far[entry.sequence]:.4f}" if entry.sequence in so_far else "",
        }
        for entry in entries
    )
    return table("Entries, the last column is the campaign's epsilon so far", rows)


def blocks_table(dataset: DataSet, parts: Sequence[BlockCharge] = ()) -> Table:
    """What is taken and left of each block.

    Args:
      dataset: the data set.
      parts: what campaigns take of it, for bars.
    """
    whole, numbers = dataset.limit.filter.limit.divergence, numbers_of(parts)
    doubts = any(block.counts_as_spent for block in dataset.blocks)
    rows = (
        {
            "block": block.block,
            "size": f"{block.size:,}",
            "epsilon taken": f"{block.epsilon_taken(dataset.limit):.4f}",
            "share left": percent(block.left(dataset.limit).divergence / (whole or math.inf)),
            "by": ", ".join(block.campaigns) or "-",
            **({"counts as spent": block.counts_as_spent or "-"} if doubts else {}),
        }
        for block in dataset.blocks
    )
    segments: dict[int, list[tuple[float, str, bool]]] = {
        block.block: [] for block in dataset.blocks
    }
    for part in parts:
        style = style_of(numbers[part.campaign])
        segments[part.block].append((100 * part.share, style, not part.ended))
    bars = tuple(Bar(tuple(pieces)) for pieces in segments.values()) if parts else ()
    title = f"Data set {dataset.name}, block by block"
    return table(title, rows, *_BLOCKS, bars=bars, bars_title="share of its budget")


def parts_table(name: str, parts: Sequence[BlockCharge]) -> Table:
    """What each campaign takes of each block, in order of the campaigns."""
    rows = (
        {
            "block": part.block,
            "campaign": part.campaign,
            "state": "spent" if part.ended else "held",
            "size": f"{part.size:,}",
            "takes part": percent(part.participation),
            "epsilon alone": f"{part.epsilon:.4f}",
            "of it": percent(part.share),
            "counted": COUNTED[part.basis],
        }
        for part in sorted(parts, key=lambda part: part.block)
    )
    return table(f"Data set {name}, campaign by campaign", rows, *_PARTS)


def numbers_of(parts: Sequence[BlockCharge]) -> dict[str, int]:
    """A number for each campaign on a data set, in order of their holds: its color."""
    return {
        name: number for number, name in enumerate(dict.fromkeys(part.campaign for part in parts))
    }
