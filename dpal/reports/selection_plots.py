"""Figures of simulated or public selections (Schwethelm et al. 2025, Figs. 9 and 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from dpal.reports.render.figures import GRID, INK, MODE_COLORS


def hits_figure(records: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Share of the selected in the true top k, by phase; one line a mechanism."""
    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(record["mechanism"] for record in records))
    others = [name for name in names if name not in MODE_COLORS]
    shades = colormaps["Greys"](np.linspace(0.35, 0.75, max(1, len(others))))
    for name in names:
        points = [(r["phase"], r["hits"]) for r in records if r["mechanism"] == name]
        own = name in MODE_COLORS
        axes.plot(
            *zip(*points, strict=True),
            marker="o" if own else ".",
            linestyle="-" if own else "--",
            linewidth=2 if own else 1,
            color=MODE_COLORS[name] if own else shades[others.index(name)],
            label=name,
        )
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.set_xlabel("selection")
    axes.set_xticks(sorted({record["phase"] for record in records}))
    axes.set_ylabel("selected that are in the true top k")
    axes.set_ylim(0, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.grid(axis="y", color=GRID)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def scores_figure(
    scores: NDArray[np.float64], picked: Mapping[str, NDArray[np.float64]], title: str
) -> Figure:
    """Scores of the whole pool and of what each mechanism picked; simulated scores only."""
    figure = Figure(figsize=(8.2, 4.2), layout="constrained")
    axes = figure.subplots()
    bins = np.linspace(0, 1, 41).tolist()
    axes.hist(scores, bins, density=True, color=GRID, label="pool")
    for name, values in picked.items():
        axes.hist(
            values,
            bins,
            density=True,
            histtype="step",
            linewidth=1.8,
            color=MODE_COLORS.get(name, INK),
            label=name,
        )
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.set_xlabel("score (larger is more wanted)")
    axes.set_ylabel("density")
    axes.set_yscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    return figure
