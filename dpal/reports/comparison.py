"""Campaigns side by side: what each promised, spent and reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from dpal.reports.ledger_plots import PALETTE
from dpal.reports.render.figures import GRID, dress, headline
from dpal.reports.summary import Table
from dpal.reports.validation import headline as first_figure
from dpal.reports.validation import percent

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


def comparison_curves(campaigns: Sequence[Compared]) -> Figure:
    """Validation figure against labels, and against epsilon; one line a campaign."""
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    name, _ = first_figure(campaigns[0].phases[0])
    headline(figure, f"Validation {name} of campaigns", comparable(campaigns))
    for number, one in enumerate(campaigns):
        color = PALETTE[number % len(PALETTE)]
        values = [first_figure(phase)[1] for phase in one.phases]
        for axes, key in ((left, "labels"), (right, "campaign_epsilon")):
            places = [float(phase[key]) for phase in one.phases]
            axes.plot(places, values, marker="o", color=color, label=one.summary["name"])
    left.set_xlabel("labels, up to")
    right.set_xlabel("epsilon that any record may have lost")
    left.set_ylabel(f"{name} (validation set, not protected)")
    left.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    for axes in (left, right):
        dress(axes)
        axes.grid(axis="x", color=GRID, linewidth=0.5)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=6, fontsize=9, frameon=False)
    return figure


def _row(one: Compared) -> tuple[str, ...]:
    summary, last = one.summary, one.phases[-1]
    name, value = first_figure(last)
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
