"""Figures of plans side by side: over the values of a setting, or over ways to plan.

Every figure says what all of its plans promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from dpal.reports.render.figures import (
    BLUE,
    GREY,
    PROMISE,
    colors_for,
    dress,
    headline,
    note,
)


def sweep_figure(key: str, rows: Sequence[Mapping[str, Any]], promise: str) -> Figure:
    """Plans over one setting: noise, steps and expected precision.

    Args:
      key: the setting.
      rows: records of alternatives, in order; their values are under `key`.
      promise: what all of them promise, in words.
    """
    planned = [row for row in rows if row["planned"]]
    panels = _panels(planned)
    figure = Figure(figsize=(8.6, 1.2 + 2.2 * max(1, len(panels))), layout="constrained")
    grid = figure.subplots(max(1, len(panels)), 1, sharex=True, squeeze=False)[:, 0]
    headline(figure, f"Plans over {key}", promise)
    numeric = all(_is_number(row[key]) for row in rows)
    places = {at: float(row[key]) if numeric else float(at) for at, row in enumerate(rows)}
    for axes, (name, label) in zip(grid, panels, strict=False):
        points = [
            (places[at], row[name])
            for at, row in enumerate(rows)
            if row["planned"] and row[name] is not None
        ]
        axes.plot(*zip(*points, strict=True), color=BLUE, marker="o", label=label)
        if name == "expected_precision":
            axes.plot(
                places.values(),
                [row.get("precision_by_chance") for row in rows],
                color=GREY,
                linestyle="--",
                label="by chance",
            )
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
            axes.legend(fontsize=8, frameon=False)
            axes.set_ylim(0, 1.05)
        axes.set_ylabel(label)
        axes.margins(y=0.2)
        dress(axes)
    for at, row in enumerate(rows):
        if not row["planned"]:
            grid[-1].plot(
                places[at],
                0.04,
                marker="x",
                color=PROMISE,
                clip_on=False,
                transform=grid[-1].get_xaxis_transform(),
            )
            grid[-1].annotate(
                "no plan",
                (places[at], 0.07),
                ha="center",
                fontsize=7,
                xycoords=grid[-1].get_xaxis_transform(),
                color=PROMISE,
            )
    if not numeric:
        grid[-1].set_xticks(list(places.values()), [str(row[key]) for row in rows])
    grid[-1].set_xlabel(key)
    return figure


def comparison_figure(rows: Sequence[Mapping[str, Any]], promise: str) -> Figure:
    """Strategies and ways to select side by side.

    Args:
      rows: records of alternatives; those without a plan are left out and named.
      promise: what all of them promise, in words.
    """
    planned = [row for row in rows if row["planned"]]
    panels = _panels(planned)
    figure = Figure(figsize=(9.6, 1.8 + 0.34 * max(4, len(planned))), layout="constrained")
    grid = figure.subplots(1, max(1, len(panels)), sharey=True, squeeze=False)[0]
    missing = len(rows) - len(planned)
    left_out = f"; {missing} of {len(rows)} have no plan" if missing else ""
    headline(figure, "Strategies and ways to select", promise + left_out)
    names = list(dict.fromkeys(str(row["strategy"]) for row in rows))
    colors = dict(zip(names, colors_for(len(names)), strict=True))
    for axes, (name, label) in zip(grid, panels, strict=False):
        for at, row in enumerate(planned):
            value = row[name]
            if value is None:
                note(axes, "depends on the scores", (0, at), shift=(3, 0), va="center")
                continue
            axes.barh(at, value, height=0.7, color=colors[row["strategy"]])
            text = f"{value:.0%}" if name == "expected_precision" else _short(value)
            note(axes, text, (value, at), shift=(3, 0), va="center")
        axes.set_xlabel(label)
        axes.margins(x=0.22)
        dress(axes, along="x")
        if name == "expected_precision":
            axes.set_xlim(0, 1.2)
            axes.set_xticks([0, 0.5, 1])
            axes.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    grid[0].set_yticks(
        range(len(planned)),
        [f"{row['strategy']}, {row['selection']}" for row in planned],
        fontsize=8,
    )
    grid[0].invert_yaxis()
    return figure


def _panels(planned: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Columns worth drawing, and what they are called."""
    wanted = [("first_noise", "noise multiplier, phase 0"), ("total_steps", "steps, all phases")]
    if any(row["expected_precision"] is not None for row in planned):
        wanted.append(("expected_precision", "expected precision"))
    return wanted if planned else []


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
