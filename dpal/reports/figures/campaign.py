"""Figures of campaigns: what was spent by phase, and what labels bought for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

from dpal.reports.campaigns_side_by_side import Compared, comparability_note
from dpal.reports.charts import REST, STYLES, Chart, Line, axis, style_of
from dpal.reports.figures import style
from dpal.reports.summary import cohort_words, terms
from dpal.reports.validation_figures import headline, percent, protection_words

_COLORS = {**dict(zip(STYLES, style.PALETTE, strict=True)), REST: style.GREY}


def budget_chart(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> Chart:
    """Epsilon of every cohort by phase, as the ledger adds it up, under the promised line."""
    key, target = f"epsilon_{summary['accountant']}", summary["target_epsilon"]
    lines = []
    for number, name in enumerate(cohort["cohort"] for cohort in phases[-1]["cohorts"]):
        points = tuple(
            (float(phase["phase"]), float(cohort[key]))
            for phase in phases
            for cohort in phase["cohorts"]
            if cohort["cohort"] == name
        )
        style = style_of(number) if name.isdecimal() else REST
        lines.append(Line(name=cohort_words(name), points=points, style=style))
    told = "; ".join(
        f"{line.name}: " + ", ".join(f"{value:.2f}" for _, value in line.points) for line in lines
    )
    return Chart(
        name="budget",
        title="Privacy spent by cohort",
        below=terms(summary),
        lines=tuple(lines),
        x=axis("phase", 0, max(1, len(phases) - 1), whole=True),
        y=axis(f"epsilon ({summary['accountant'].upper()})", 0, target * 1.15),
        limit=target,
        limit_name=f"promised: {target:g}",
        alt=f"Epsilon by phase, from phase 0. {told}. Promised: {target:g}.",
    )


def learning_chart(phases: Sequence[Mapping[str, Any]], key: str = "labels") -> Chart:
    """The headline figure over labels, or over `campaign_epsilon`.

    What a phase brought that bought no labels (self-training) is a line of its own.
    """
    name, _ = headline(phases[0])
    points = tuple((float(phase[key]), headline(phase)[1]) for phase in phases)
    values, places = [value for _, value in points], [place for place, _ in points]
    title = "labels, planned" if key == "labels" else "epsilon, any record"
    told = ", ".join(f"{percent(value)} at {place:,.4g}" for place, value in points)
    room = 0.04 * max(max(places) - min(places), 1e-9)
    labels = tuple(f"{100 * value:.1f}" for value in values)
    bought = next(
        (number for number, (earlier, later) in enumerate(pairwise(phases), 1)
         if later["labels"] == earlier["labels"]),
        len(phases),
    )  # fmt: skip
    lines = [Line(name=name, points=points[:bought], style=style_of(0), labels=labels[:bought])]
    if bought < len(phases):
        beside, told_of = points[bought - 1 :], ("", *labels[bought:])
        lines.append(
            Line(name="self-training, no labels", points=beside, style=style_of(1), labels=told_of)
        )
    return Chart(
        name="accuracy" if key == "labels" else "accuracy-by-epsilon",
        title=f"Validation {name}",
        below=f"on {protection_words(phases[-1])}",
        lines=tuple(lines),
        x=axis(title, min(places) - room, max(places) + room),
        y=axis(
            f"validation {name}",
            max(0.0, min(values) - 0.1),
            min(1.0, max(values) + 0.08),
            percent=True,
        ),
        alt=f"Validation {name} by {title.partition(',')[0]}: {told}.",
    )


def chart_figure(chart: Chart) -> Figure:
    """A chart, drawn where no page draws it."""
    figure, [axes] = style.canvas(chart.title, chart.below, size=(7.2, 4.2))
    for line in chart.lines:
        dotted = ":" if line.style == REST else "-"
        axes.plot(
            *zip(*line.points, strict=True),
            marker="o",
            color=_COLORS[line.style],
            linestyle=dotted,
            label=line.name,
        )
        for place, label in zip(line.points, line.labels, strict=False):
            style.note(axes, label, place, shift=(0, 7), ha="center", color=style.INK)
    axes.set_xlabel(chart.x.title)
    axes.set_ylabel(chart.y.title)
    axes.set_xticks(chart.x.ticks)
    axes.set_ylim(chart.y.low, chart.y.high)
    if chart.y.percent:
        style.in_percent(axes.yaxis)
    if chart.limit is not None:
        style.promise_line(axes, chart.limit, highest=0)
    if len(chart.lines) > 1:
        style.legend_beside(axes)
    return figure


def budget_figure(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> Figure:
    """Epsilon of every cohort by phase."""
    return chart_figure(budget_chart(summary, phases))


def validation_figure(phases: Sequence[Mapping[str, Any]]) -> Figure:
    """The headline figure on the validation set by the number of labels bought."""
    return chart_figure(learning_chart(phases))


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
    right.set_xlabel("epsilon that any record may have lost")
    left.set_ylabel(f"validation {name}")
    style.in_percent(left.yaxis)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=6, **style.LEGEND)
    return figure
