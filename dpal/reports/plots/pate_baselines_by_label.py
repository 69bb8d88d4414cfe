"""Figures of private voting: one figure of every label, method by method."""

from __future__ import annotations

import math
import statistics

from matplotlib.figure import Figure

from dpal.reports.pate_baseline_tables import AVERAGES, WORDS, Methods, known_of, of_label
from dpal.reports.plots import style
from dpal.reports.sweeps import spread

_COLORS = {
    "pate": style.BLUE,
    "non_private": style.GREY,
    "dp_sgd": style.WARM,
    "dp_sgd_adaptive": style.PROMISE,
}


def labels_figure(
    *runs: Methods, figure: str, below: str, more: str = "", lowest: float = 0.0
) -> Figure:
    """Bars of one figure, label by label and method by method; means of several runs.

    Args:
      runs: methods of one run, or of its repetitions.
      figure: which one.
      below: what is promised.
      more: of the title.
      lowest: where bars begin.
    """
    labels, first = list(runs[0]["pate"]["labels"]), runs[0]
    size = (max(6.4, 0.52 * len(labels) + 2.5), 3.8)
    drawn, [axes] = style.canvas(f"{AVERAGES[figure]} of each label{more}", below, size=size)
    for position, name in enumerate(first):
        label_values = [
            known_of(of_label(run, name, label, figure) for run in runs) for label in labels
        ]
        axes.bar(
            style.beside(position, len(first), len(labels)),
            [statistics.fmean(values) if values else math.nan for values in label_values],
            style.BARS / len(first),
            yerr=[spread(values) for values in label_values] if len(runs) > 1 else None,
            error_kw={"linewidth": 0.6},
            label=WORDS[name],
            color=_COLORS.get(name, style.GREEN),
        )
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
    axes.axhline(0.5, color=style.GREY, linewidth=0.8, linestyle="--")
    axes.set_ylim(lowest, 1)
    axes.set_ylabel(AVERAGES[figure])
    axes.legend(**style.LEGEND, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return drawn
