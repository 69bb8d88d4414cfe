"""Figure of a rehearsal, one line a way of selecting (Schwethelm et al. 2025, Fig. 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dpal.reports.intervals import half_width
from dpal.reports.plots import style
from dpal.reports.validation_figures import headline


def rehearsal_figure(records: Sequence[Mapping[str, Any]], title: str, below: str) -> Figure:
    """Mean headline figure after each phase, and its 95 % confidence interval over runs.

    Args:
      records: of `flows.cli.run_rehearsals.run_rehearsals`.
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
            yerr=[half_width(values.tolist()) for values in reached.T] if len(runs) > 1 else None,
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
    axes.set_ylabel(f"{about}, mean and 95 % interval")
    style.in_percent(axes.yaxis)
    style.legend_beside(axes)
    return figure
