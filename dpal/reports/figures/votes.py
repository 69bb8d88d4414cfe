"""Figures of private voting: one figure of every label, method by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from dpal.reports.figures.style import (
    BARS,
    BLUE,
    GREEN,
    GREY,
    LEGEND,
    PROMISE,
    WARM,
    beside,
    canvas,
)

_COLORS = {"pate": BLUE, "non_private": GREY, "dp_sgd": WARM, "dp_sgd_adaptive": PROMISE}


def labels_figure(
    title: str,
    below: str,
    labels: Sequence[str],
    methods: Mapping[str, tuple[str, Sequence[tuple[float, float]]]],
    *,
    figure: str,
    lowest: float = 0.0,
) -> Figure:
    """Bars of one figure, label by label and method by method.

    Args:
      title: above all.
      below: what is promised.
      labels: k names.
      methods: by name, what it is called and k means with their standard deviations; a mean that
        is not known is NaN.
      figure: what the figure is called.
      lowest: where bars begin.
    """
    drawn, [axes] = canvas(title, below, size=(max(6.4, 0.52 * len(labels) + 2.5), 3.8))
    for at, (name, (called, values)) in enumerate(methods.items()):
        means, spreads = zip(*values, strict=True)
        axes.bar(
            beside(at, len(methods), len(labels)),
            means,
            BARS / len(methods),
            yerr=spreads if any(spreads) else None,
            error_kw={"linewidth": 0.6},
            label=called,
            color=_COLORS.get(name, GREEN),
        )
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
    axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle="--")
    axes.set_ylim(lowest, 1)
    axes.set_ylabel(figure)
    axes.legend(**LEGEND, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return drawn
