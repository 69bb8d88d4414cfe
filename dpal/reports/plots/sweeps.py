"""Figure of a sweep of runs: one line a way, mean and 95 % confidence interval over runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpal.reports.intervals import half_width
from dpal.reports.plan_and_phase_tables import terms
from dpal.reports.plots import style
from dpal.reports.sweeps import Point


def sweep_figure(points: Sequence[Point], key: str) -> Figure:
    """Draws the headline figure over the first swept setting; and pollution, where it is known.

    Args:
      points: of `points_of`, at least one, with figures.
      key: the setting on the horizontal axis.
    """
    polluted, first = all(point.irrelevant for point in points), points[0]
    spent = max(point.epsilon for point in points)
    started = [value for point in points for value in point.start]
    figure, rows = style.canvas(
        f"{first.figure[0].upper()}{first.figure[1:]}"
        + (" after fine-tuning on public records" if started else ""),
        f"epsilon at most {spent:.4f} in all, {terms(first.promise)}",
        size=(8.2, 8.4 if polluted else 4.6),
        nrows=2 if polluted else 1,
    )
    _lines(rows[0], points, lambda point: point.reached)
    if started:
        start = statistics.fmean(started)
        rows[0].axhline(start, color=style.GREY, linestyle="--", linewidth=1)
        inside = {"xycoords": ("axes fraction", "data"), "color": style.GREY}
        style.note(rows[0], "starts, mean", (0.0, start), shift=(4, 3), **inside)
    rows[0].set_ylabel(f"validation {first.figure}, mean and 95 % interval")
    if polluted:
        _lines(rows[1], points, lambda point: point.irrelevant)
        rows[1].set_ylabel("irrelevant among the chosen, mean and 95 % interval")
        rows[1].set_ylim(bottom=0)
    for axes in rows:
        axes.set_xlabel(key)
        style.in_percent(axes.yaxis, decimals=1)
        style.legend_beside(axes)
    return figure


def _lines(
    axes: Axes, points: Sequence[Point], values_of: Callable[[Point], Sequence[float]]
) -> None:
    places, are_numbers = style.axis_positions(point.x for point in points)
    for number, name in enumerate(dict.fromkeys(point.line for point in points)):
        mine = [point for point in points if point.line == name]
        axes.errorbar(
            [places[point.x] for point in mine],
            [statistics.fmean(values_of(point)) for point in mine],
            yerr=[half_width(values_of(point)) for point in mine],
            marker="o",
            markersize=4,
            capsize=3,
            linewidth=1.6 if are_numbers else 0,
            elinewidth=1.6,
            color=style.PALETTE[number % len(style.PALETTE)],
            label=f"{name or 'mean'}: {100 * statistics.fmean(values_of(mine[-1])):.1f} %",
        )
    if not are_numbers:
        style.name_places(axes, places)
