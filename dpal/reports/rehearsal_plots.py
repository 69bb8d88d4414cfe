"""Figure of a rehearsal on public data: accuracy by labels, one line a way of selecting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from dpal.reports.render.figures import INK, MODE_COLORS, dress, headline
from dpal.reports.validation import headline as headline_of


def rehearsal_figure(records: Sequence[Mapping[str, Any]], title: str, below: str) -> Figure:
    """Mean headline figure after each phase, and the standard deviation over runs.

    Args:
      records: of `flows.cli.rehearse_view.run_rehearsals`.
      title: what was rehearsed.
      below: the promise that all of the private ones keep.
    """
    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    axes = figure.subplots()
    methods = list(dict.fromkeys(record["method"] for record in records))
    for method in methods:
        runs = [record for record in records if record["method"] == method]
        labels = np.array([[one["labels"] for one in run["phases"]] for run in runs]).mean(axis=0)
        reached = np.array(
            [[headline_of(one, prefix="")[1] for one in run["phases"]] for run in runs]
        )
        private = runs[0]["selection_is_private"]
        name = method if private else f"{method} (NOT private)"
        axes.errorbar(
            labels,
            reached.mean(axis=0),
            yerr=reached.std(axis=0, ddof=1) if len(runs) > 1 else None,
            color=MODE_COLORS.get(method, INK),
            linestyle="-" if private else "--",
            marker="o",
            markersize=4,
            capsize=3,
            linewidth=1.6,
            label=f"{name}: {100 * reached[:, -1].mean():.1f} %",
        )
    headline(figure, title, below)
    axes.set_xlabel("labels bought")
    about, _ = headline_of(records[0]["phases"][-1], prefix="")
    axes.set_ylabel(f"validation {about}, mean and sd of runs")
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    dress(axes)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure
