"""Figure of a sweep of improvements: one line a way, mean and standard deviation over runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from dpal.reports.render.figures import GREY, dress, headline
from dpal.reports.sweeps import Point, spread


def sweep_figure(points: Sequence[Point], key: str) -> Figure:
    """Draws the headline figure over the first swept setting; and pollution, where it is known.

    Args:
      points: of `points_of`, at least one.
      key: the setting on the horizontal axis.
    """
    polluted = all(point.irrelevant for point in points)
    figure = Figure(figsize=(8.2, 8.4 if polluted else 4.6), layout="constrained")
    rows = figure.subplots(2 if polluted else 1, 1, squeeze=False)[:, 0]
    _lines(rows[0], points, lambda point: point.reached)
    starts = [value for point in points for value in point.start]
    rows[0].axhline(statistics.fmean(starts), color=GREY, linestyle="--", linewidth=1)
    rows[0].annotate(
        "starts, mean",
        (0.0, statistics.fmean(starts)),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        fontsize=8,
        color=GREY,
    )
    rows[0].set_ylabel(f"validation {points[0].figure}, mean and sd")
    if polluted:
        _lines(rows[1], points, lambda point: point.irrelevant)
        rows[1].set_ylabel("irrelevant among the chosen, mean and sd")
        rows[1].set_ylim(bottom=0)
    for axes in rows:
        axes.set_xlabel(key)
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=1))
        dress(axes)
        axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.02, 0.5))
    one = points[0]
    spent = max(point.epsilon for point in points)
    headline(
        figure,
        f"{points[0].figure[0].upper()}{points[0].figure[1:]} after fine-tuning on public records",
        f"epsilon at most {spent:.3f} in all, delta {one.delta:.3g}, adjacency {one.adjacency}, "
        f"unit {one.unit}",
    )
    return figure


def _lines(
    axes: Axes, points: Sequence[Point], values_of: Callable[[Point], Sequence[float]]
) -> None:
    names = list(dict.fromkeys(point.line for point in points))
    numbers = all(isinstance(point.x, int | float) for point in points)
    places: dict[Any, float] = {}
    if not numbers:
        places = {x: at for at, x in enumerate(dict.fromkeys(point.x for point in points))}
    colors = colormaps["tab10"]
    for number, name in enumerate(names):
        mine = [point for point in points if point.line == name]
        xs = [float(point.x) if numbers else places[point.x] for point in mine]
        axes.errorbar(
            xs,
            [statistics.fmean(values_of(point)) for point in mine],
            yerr=[spread(values_of(point)) for point in mine],
            marker="o",
            markersize=4,
            capsize=3,
            linewidth=1.6 if numbers else 0,
            color=colors(number % 10),
            label=f"{name or 'improved'}: {100 * statistics.fmean(values_of(mine[-1])):.1f} %",
        )
    if not numbers:
        axes.set_xticks(list(places.values()), [str(x) for x in places])
