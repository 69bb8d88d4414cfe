"""A chart as a figure of matplotlib, for where no page draws it."""

from __future__ import annotations

from matplotlib.figure import Figure

from dpal.reports.charts import REST, STYLES, Chart
from dpal.reports.plots import style

_COLORS = {**dict(zip(STYLES, style.PALETTE, strict=True)), REST: style.GREY}


def chart_figure(chart: Chart) -> Figure:
    """Draws a chart."""
    figure, [axes] = style.canvas(chart.title, chart.below, size=(7.2, 4.2))
    for line in chart.lines:
        dotted = ":" if line.style == REST else "-"
        if line.band:
            places = [place for place, _ in line.points]
            lowest, highest = ([edge[side] for edge in line.band] for side in (0, 1))
            color = _COLORS[line.style]
            axes.fill_between(places, lowest, highest, color=color, alpha=0.13, linewidth=0)
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
