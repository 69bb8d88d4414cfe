"""Figures of selections on simulated scores (Schwethelm et al. 2025, Fig. 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dpal.reports.plots import style


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
        color = style.MODE_COLORS.get(name, style.INK)
        if values.size:
            axes.hist(values, bins, density=True, color=color, label=name, **line)
        else:  # a threshold that few pass may let nobody pass; nobody has no density
            axes.plot([], [], color=color, label=f"{name}: nobody")
    axes.set_xlabel("score (larger is more wanted)")
    axes.set_ylabel("density")
    axes.set_yscale("log")
    axes.grid(visible=False)
    axes.legend(**style.LEGEND)
    return figure
