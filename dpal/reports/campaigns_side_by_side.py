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
    """One row a campaign. An epsilon stands with its delta, adjacency and unit."""
    return table("Campaigns side by side", map(_row, campaigns))


def comparability_note(campaigns: Sequence[Compared]) -> str:
    """Whether epsilons of these campaigns may be set side by side, in words."""
    keys = ("delta", "adjacency", "unit")
    if len({tuple(campaign.summary[key] for key in keys) for campaign in campaigns}) == 1:
        return "All promise at the same delta, adjacency and unit."
    return (
        "Their deltas, adjacencies or units differ: a smaller epsilon is not always the stronger "
        "promise here."
    )


def _row(campaign: Compared) -> dict[str, object]:
    summary, last = campaign.summary, campaign.reached or campaign.phases[-1]
    name, value = headline(last)
    by_chance = summary["acquisition"] == "random"
    return {
        "campaign": summary["name"],
        "phases": f"{len(campaign.phases)}/{len(summary['phases'])}",
        "labels, planned": f"{last['labels']:,}",
        "validation": f"{percent(value)} {name}",
        "epsilon spent": f"{last['campaign_epsilon']:.4f}",
        "of": f"{summary['target_epsilon']:g}",
        "delta": f"{summary['delta']:.3g}",
        "adjacency": summary["adjacency"],
        "unit": summary["unit"],
        "selection": "random" if by_chance else summary["selection"],
        "strategy": summary["strategy"],
    }
