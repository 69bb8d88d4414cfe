"""Figures of plans side by side: over the values of a setting, or over ways to plan.

Every figure says what its plans promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from dpal.reports.plots import style
from dpal.reports.report import swept_value

_PRECISION = "expected_precision"


def plan_sweep_figure(key: str, rows: Sequence[Mapping[str, Any]], promise: str) -> Figure:
    """Plans over one setting: noise, steps and expected precision.

    Args:
      key: the setting.
      rows: records of alternatives, in order; their values are under `key`.
      promise: what they promise, and what of it differs, in words.
    """
    rows = [{**row, key: swept_value(row[key])} for row in rows]
    planned = [row for row in rows if row["planned"]]
    panels = _panels(planned)
    count = max(1, len(panels))
    figure, grid = style.canvas(
        f"Plans over {key}", promise, size=(8.6, 1.2 + 2.2 * count), nrows=count, sharex=True
    )
    places, are_numbers = style.axis_positions(row[key] for row in rows)
    for axes, (name, label) in zip(grid, panels, strict=False):
        points = [(places[row[key]], row[name]) for row in planned if row[name] is not None]
        axes.plot(*zip(*points, strict=True), color=style.BLUE, marker="o", label=label)
        if name == _PRECISION:
            chance: list[Any] = [row.get("precision_by_chance") for row in rows]
            positions = [places[row[key]] for row in rows]
            axes.plot(positions, chance, color=style.GREY, linestyle="--", label="by chance")
            style.in_percent(axes.yaxis)
            axes.legend(**style.LEGEND)
            axes.set_ylim(0, 1.05)
        axes.set_ylabel(label)
        axes.margins(y=0.2)
    last = grid[-1]
    for row in (row for row in rows if not row["planned"]):
        low: dict[str, Any] = {"transform": last.get_xaxis_transform(), "clip_on": False}
        last.plot(places[row[key]], 0.04, marker="x", color=style.PROMISE, **low)
        shown = {"ha": "center", "color": style.PROMISE, "xycoords": last.get_xaxis_transform()}
        style.note(last, "no plan", (places[row[key]], 0.07), shift=(0, 0), fontsize=7, **shown)
    if not are_numbers:
        style.name_places(last, places)
    last.set_xlabel(key)
    return figure


def comparison_figure(rows: Sequence[Mapping[str, Any]], promise: str) -> Figure:
    """Strategies and ways to select side by side.

    Args:
      rows: records of alternatives; those without a plan are left out and named.
      promise: what all of them promise, in words.
    """
    planned = [row for row in rows if row["planned"]]
    panels, missing = _panels(planned), len(rows) - len(planned)
    left_out = f"; {missing} of {len(rows)} have no plan" if missing else ""
    figure, grid = style.canvas(
        "Strategies and ways to select",
        promise + left_out,
        size=(9.6, 1.8 + 0.34 * max(4, len(planned))),
        along="x",
        ncols=max(1, len(panels)),
        sharey=True,
    )
    names = list(dict.fromkeys(str(row["strategy"]) for row in rows))
    colors = dict(zip(names, style.colors_for(len(names)), strict=True))
    for axes, (name, label) in zip(grid, panels, strict=False):
        for position, row in enumerate(planned):
            value = row[name]
            if value is None:
                style.note(axes, "depends on the scores", (0, position), shift=(3, 0), va="center")
                continue
            axes.barh(position, value, height=0.7, color=colors[row["strategy"]])
            text = f"{value:.0%}" if name == _PRECISION else _short(value)
            style.note(axes, text, (value, position), shift=(3, 0), va="center")
        axes.set_xlabel(label)
        axes.margins(x=0.22)
        if name == _PRECISION:
            axes.set_xlim(0, 1.2)
            axes.set_xticks([0, 0.5, 1])
            style.in_percent(axes.xaxis)
    labels = [f"{row['strategy']}, {row['selection']}" for row in planned]
    grid[0].set_yticks(range(len(planned)), labels, fontsize=8)
    grid[0].invert_yaxis()
    return figure


def _panels(planned: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Columns worth drawing, and what they are called."""
    wanted = [("first_noise", "noise multiplier, phase 0"), ("total_steps", "steps, all phases")]
    if any(row[_PRECISION] is not None for row in planned):
        wanted.append((_PRECISION, "expected precision"))
    return wanted if planned else []


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
