"""Campaigns side by side: what each promised, spent and reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.reports.report import Table, table
from dpal.reports.validation_figures import headline, percent


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One campaign among others.

    Attributes:
      summary: of its certified plan.
      phases: metrics of its finished phases, at least one.
      reached: what it cost, and the figures of its model; None where that is the last phase's.
    """

    summary: Mapping[str, Any]
    phases: Sequence[Mapping[str, Any]]
    reached: Mapping[str, Any] | None = None


def comparison_table(campaigns: Sequence[Compared]) -> Table:
    """One row a campaign: how far it is, what it spent and reached, and what sets it apart.

    What holds for all of them alike is no column: `comparability_note` says it.
    """
    settings = [_settings(campaign) for campaign in campaigns]
    apart = [key for key in settings[0] if len({each[key] for each in settings}) > 1]
    rows = (
        _row(campaign) | {key: str(each[key]) for key in apart}
        for campaign, each in zip(campaigns, settings, strict=True)
    )
    return table("Campaigns side by side", rows)


def comparability_note(campaigns: Sequence[Compared]) -> str:
    """What holds for all campaigns, and whether their epsilons may be set side by side, in words.

    An epsilon stands with its delta, adjacency and unit: here, or in a row of its own.
    """
    promises = [_promise(campaign) for campaign in campaigns]
    settings = [_settings(campaign) for campaign in campaigns]
    shared = [
        f"{key} {f'{value:.3g}' if isinstance(value, float) else value}"
        for key, value in settings[0].items()
        if all(each[key] == value for each in settings)
    ]
    told = f"All have {', '.join(shared)}. " if shared else ""
    if all(promise == promises[0] for promise in promises):
        return f"{told}Their epsilons may be compared."
    return (
        f"{told}Their deltas, adjacencies or units differ: a smaller epsilon is not always the "
        "stronger promise here."
    )


def _row(campaign: Compared) -> dict[str, object]:
    summary, last = campaign.summary, campaign.reached or campaign.phases[-1]
    name, value = headline(last)
    return {
        "campaign": summary["name"],
        "phases": f"{len(campaign.phases)}/{len(summary['phases'])}",
        "labels, planned": f"{last['labels']:,}",
        "validation": f"{percent(value)} {name}",
        "epsilon spent": f"{last['campaign_epsilon']:.4f}",
        "of": f"{summary['target_epsilon']:g}",
    }


def _promise(campaign: Compared) -> dict[str, object]:
    """What an epsilon means; it cannot be compared with one of another meaning, however close."""
    return {key: campaign.summary[key] for key in ("delta", "adjacency", "unit")}


def _settings(campaign: Compared) -> dict[str, object]:
    """The promise, and how records are found and noise is planned."""
    summary = campaign.summary
    by_chance = summary["acquisition"] == "random"
    return {
        **_promise(campaign),
        "selection": "random" if by_chance else summary["selection"],
        "strategy": summary["strategy"],
    }
