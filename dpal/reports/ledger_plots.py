"""Figures of what campaigns take of a data set, drawn without any global state."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from dpal.ledger.datasets import DataSet
from dpal.ledger.history import Part
from dpal.reports.ledger_tables import limit_in_words
from dpal.reports.render.figures import (
    INK,
    PROMISE,
    QUIET,
    dress,
    headline,
    note,
)

PALETTE = ("#2a6f97", "#d9822b", "#1b7f5c", "#7b4fa3", "#b2507b", "#5c6b3c", "#3aa6a0", "#8a5a3b")
HELD = 0.45  # how strong a color is while a campaign holds what it may not use


def campaign_colors(parts: Sequence[Part]) -> dict[str, str]:
    """A color for each campaign, in order of their holds."""
    names = dict.fromkeys(one.campaign for one in parts)
    return {name: PALETTE[at % len(PALETTE)] for at, name in enumerate(names)}


def dataset_figure(known: DataSet, parts: Sequence[Part]) -> Figure:
    """The share of each block's budget that each campaign takes, with the epsilon they add up to.

    Args:
      known: the data set.
      parts: of all campaigns on it, in order.
    """
    figure = Figure(figsize=(7.2, 1.9 + 0.5 * len(known.blocks)), layout="constrained")
    axes = figure.subplots()
    headline(figure, f"Budget of data set {known.name}", limit_in_words(known.limit))
    named: set[str] = set()
    for one in known.blocks:
        start = 0.0
        for part in (each for each in parts if each.block == one.block):
            axes.barh(
                one.block,
                part.share,
                left=start,
                height=0.62,
                color=campaign_colors(parts)[part.campaign],
                alpha=1.0 if part.ended else HELD,
                edgecolor="white",
                label=None if part.campaign in named else _label(part),
            )
            named.add(part.campaign)
            start += part.share
        taken = f"epsilon {one.epsilon_taken(known.limit):.3f}"
        note(axes, taken, (start, one.block), shift=(5, 0), va="center")
    axes.set_yticks(
        [one.block for one in known.blocks],
        [f"block {one.block}\n{one.size:,}" for one in known.blocks],
        color=INK,
        fontsize=9,
    )
    axes.set_ylim(len(known.blocks) - 0.5, -0.5)
    axes.set_xlabel(
        "share of the block's budget; shares add up, epsilons do not", color=QUIET, fontsize=9
    )
    dress(axes, along="x")
    axes.axvline(1.0, color=PROMISE, linewidth=1.2, linestyle="--")
    axes.set_xlim(0, 1.2)  # room for the words beside a full bar
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    if named:
        figure.legend(loc="outside lower left", ncols=4, fontsize=8, frameon=False)
    return figure


def _label(part: Part) -> str:
    return part.campaign if part.ended else f"{part.campaign} (held)"
