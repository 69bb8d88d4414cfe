"""Figures of campaigns, alone and side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from dpal.reports.campaign_charts import budget_chart, learning_chart
from dpal.reports.campaigns_side_by_side import Compared, comparability_note
from dpal.reports.plots import style
from dpal.reports.plots.draw_chart import chart_figure
from dpal.reports.validation_figures import headline


def budget_figure(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> Figure:
    """Epsilon of every cohort by phase."""
    return chart_figure(budget_chart(summary, phases))


def validation_figure(phases: Sequence[Mapping[str, Any]], unit: str) -> Figure:
    """The headline figure on the validation set by what was labeled: records, or groups."""
    return chart_figure(learning_chart(phases, unit=unit))


def comparison_curves(campaigns: Sequence[Compared]) -> Figure:
    """Validation figure against labels, and against epsilon; one line a campaign."""
    name, _ = headline(campaigns[0].phases[0])
    figure, [left, right] = style.canvas(
        f"Validation {name} of campaigns",
        comparability_note(campaigns),
        size=(10.4, 4.6),
        along="both",
        ncols=2,
        sharey=True,
    )
    for number, campaign in enumerate(campaigns):
        values = [headline(phase)[1] for phase in campaign.phases]
        shown: dict[str, Any] = {"marker": "o", "color": style.PALETTE[number % len(style.PALETTE)]}
        for axes, key in ((left, "labels"), (right, "campaign_epsilon")):
            places = [float(phase[key]) for phase in campaign.phases]
            axes.plot(places, values, label=campaign.summary["name"], **shown)
    left.set_xlabel("labels, planned")
    right.set_xlabel("epsilon that anybody protected may have lost")
    left.set_ylabel(f"validation {name}")
    style.in_percent(left.yaxis)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=6, **style.LEGEND)
    return figure
