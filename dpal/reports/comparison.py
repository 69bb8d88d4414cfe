"""Campaigns side by side: what each promised, spent and reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.reports.report import Table
from dpal.reports.validation import headline, percent

_COLUMNS = (
    "campaign", "phases", "labels, up to", "validation", "epsilon spent", "of", "delta",
    "adjacency", "unit", "selection", "strategy",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One campaign among others.

    Attributes:
      summary: of its certified plan.
      phases: metrics of its finished phases, at least one.
    """

    summary: Mapping[str, Any]
    phases: Sequence[Mapping[str, Any]]


def comparison_table(campaigns: Sequence[Compared]) -> Table:
    """One row a campaign. An epsilon stands with its delta, adjacency and unit."""
    return Table("Campaigns side by side", _COLUMNS, tuple(_row(one) for one in campaigns))


def comparable(campaigns: Sequence[Compared]) -> str:
    """Whether epsilons of these campaigns may be set side by side, in words."""
    keys = ("delta", "adjacency", "unit")
    if len({tuple(one.summary[key] for key in keys) for one in campaigns}) == 1:
        return "All promise at the same delta, adjacency and unit."
    return (
        "Their deltas, adjacencies or units differ: a smaller epsilon is not always the stronger "
        "promise here."
    )


def _row(one: Compared) -> tuple[str, ...]:
    summary, last = one.summary, one.phases[-1]
    name, value = headline(last)
    return (
        str(summary["name"]),
        f"{len(one.phases)}/{len(summary['phases'])}",
        f"{last['labels']:,}",
        f"{percent(value)} {name}",
        f"{last['campaign_epsilon']:.4f}",
        f"{summary['target_epsilon']:g}",
        f"{summary['delta']:.3g}",
        str(summary["adjacency"]),
        str(summary["unit"]),
        "random" if summary["acquisition"] == "random" else str(summary["selection"]),
        str(summary["strategy"]),
    )
