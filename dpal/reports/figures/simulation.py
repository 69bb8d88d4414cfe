"""Figures of simulated or public selections (Schwethelm et al. 2025, Figs. 9 and 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dpal.reports.figures import style
from dpal.reports.validation import headline


def rehearsal_figure(records: Sequence[Mapping[str, Any]], title: str, below: str) -> Figure:
    """Mean headline figure after each phase, and the standard deviation over runs.

    Args:
      records: of `flows.cli.rehearse_view.run_rehearsals`.
      title: what was rehearsed.
      below: the promise that all of the private ones keep.
    """
    figure, [axes] = style.canvas(title, below, size=(8.2, 4.6))
    for method in dict.fromkeys(record["method"] for record in records):
        runs = [record for record in records if record["method"] == method]
        labels = np.array([[phase["labels"] for phase in run["phases"]] for run in runs])
        reached = np.array(
            [[headline(phase, prefix="")[1] for phase in run["phases"]] for run in runs]
        )
        private = runs[0]["selection_is_private"]
        name = method if private else f"{method} (NOT private)"
        axes.errorbar(
            labels.mean(axis=0),
            reached.mean(axis=0),
            yerr=reached.std(axis=0, ddof=1) if len(runs) > 1 else None,
            color=style.MODE_COLORS.get(method, style.INK),
            linestyle="-" if private else "--",
            marker="o",
            markersize=4,
            capsize=3,
            linewidth=1.6,
            label=f"{name}: {100 * reached[:, -1].mean():.1f} %",
        )
    axes.set_xlabel("labels bought")
    about, _ = headline(records[0]["phases"][-1], prefix="")
    axes.set_ylabel(f"validation {about}, mean and sd of runs")
    style.in_percent(axes.yaxis)
    style.legend_beside(axes)
    return figure


def hits_figure(records: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Share of the selected in the true top k, by phase; one line a mechanism."""
    figure, [axes] = style.canvas(title, size=(8.2, 4.6))
    names = list(dict.fromkeys(record["mechanism"] for record in records))
    others = [name for name in names if name not in style.MODE_COLORS]
    shades = colormaps["Greys"](np.linspace(0.35, 0.75, max(1, len(others))))
    for name in names:
        points = [(r["phase"], r["hits"]) for r in records if r["mechanism"] == name]
        own = name in style.MODE_COLORS
        axes.plot(
            *zip(*points, strict=True),
            marker="o" if own else ".",
            linestyle="-" if own else "--",
            linewidth=2 if own else 1,
            color=style.MODE_COLORS[name] if own else shades[others.index(name)],
            label=name,
        )
    axes.set_xlabel("selection")
    axes.set_xticks(sorted({record["phase"] for record in records}))
    axes.set_ylabel("selected that are in the true top k")
    axes.set_ylim(0, 1.04)
    style.in_percent(axes.yaxis)
    style.legend_beside(axes)
    return figure


def scores_figure(
    scores: NDArray[np.float64], picked: Mapping[str, NDArray[np.float64]], title: str
) -> Figure:
    """Scores of the whole pool and of what each mechanism picked; simulated scores only."""
    figure, [axes] = style.canvas(title, size=(8.2, 4.2))
    bins = np.linspace(0, 1, 41).tolist()
    axes.hist(scores, bins, density=True, color=style.GRID, label="pool")
    line: dict[str, Any] = {"histtype": "step", "linewidth": 1.8}
    for name, values in picked.items():
        axes.hist(
            values,
            bins,
            density=True,
            color=style.MODE_COLORS.get(name, style.INK),
            label=name,
            **line,
        )
    axes.set_xlabel("score (larger is more wanted)")
    axes.set_ylabel("density")
    axes.set_yscale("log")
    axes.grid(visible=False)
    axes.legend(**style.LEGEND)
    return figure
