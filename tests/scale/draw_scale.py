"""Time and memory by size, on logarithmic axes: a straight line is a power, its slope which one.

    python -m tests.scale.draw_scale docs/results/scale.json docs/results/scale.png

The figures are those of docs/benchmarks.md, where the commands that measured them stand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dpal.reports.plots import style

LAST = 1e8  # where lines are drawn on to


def slope(points: Sequence[Sequence[float]]) -> float:
    """Of the logarithms, between the last two sizes: 1 where time grows as size does."""
    (size, value), (larger, more) = points[-2:]
    return float(np.log(more / value) / np.log(larger / size))


def extrapolated(points: Sequence[Sequence[float]], to: float = LAST) -> list[list[float]]:
    """The last point, and one further on the same power, which never falls."""
    size, value = points[-1]
    return [[size, value], [to, value * (to / size) ** max(slope(points), 0.0)]]


def scale_figure(measured: Mapping[str, Any]) -> Figure:
    """Two charts side by side: CPU seconds, and peak memory."""
    below = f"{measured['hardware']}. Dotted: drawn on from there. Dashed: before."
    figure, [times, memory] = style.canvas(
        "Time and memory by size", below, size=(11.0, 4.8), along="both", ncols=2
    )
    for color, line in zip(style.PALETTE, measured["lines"], strict=False):
        name = f"{line['name']} (slope {slope(line['seconds']):.2f})"
        times.plot(*_xy(line["seconds"]), marker="o", markersize=4, color=color, label=name)
        times.plot(*_xy(extrapolated(line["seconds"])), linestyle=":", color=color)
        if "before" in line:
            times.plot(*_xy(line["before"]), marker="x", linestyle="--", alpha=0.5, color=color)
        if line["mib"]:
            memory.plot(*_xy(line["mib"]), marker="o", markersize=4, color=color)
    for axes, what in ((times, "CPU seconds"), (memory, "peak memory, MiB")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("records, or entries of a ledger")
        axes.set_ylabel(what)
    memory.set_ylim(100, 10_000)
    figure.legend(**style.LEGEND, loc="outside lower center", ncols=2)
    return figure


def _xy(points: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    return [size for size, _ in points], [value for _, value in points]


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    style.save(scale_figure(json.loads(source.read_text(encoding="utf-8"))), target)


if __name__ == "__main__":
    main()
