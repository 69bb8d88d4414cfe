"""Figure of what campaigns take of a data set."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from dpal.ledger.data_set_accounts import DataSet
from dpal.ledger.data_set_history import BlockCharge
from dpal.reports.ledger_tables import limit_in_words, numbers_of
from dpal.reports.plots import style

HELD = 0.45  # how strong a color is while a campaign holds what it may not use


def dataset_figure(dataset: DataSet, parts: Sequence[BlockCharge]) -> Figure:
    """The share of each block's budget that each campaign takes, with the epsilon they add up to.

    Args:
      dataset: the data set.
      parts: of all campaigns on it, in order.
    """
    figure, [axes] = style.canvas(
        f"Budget of data set {dataset.name}",
        limit_in_words(dataset.limit),
        size=(7.2, 1.9 + 0.5 * len(dataset.blocks)),
        along="x",
    )
    numbers, named = numbers_of(parts), set[str]()
    for block in dataset.blocks:
        start = 0.0
        for part in (part for part in parts if part.block == block.block):
            label = part.campaign if part.ended else f"{part.campaign} (held)"
            axes.barh(
                block.block,
                part.share,
                left=start,
                height=0.62,
                color=style.PALETTE[numbers[part.campaign] % len(style.PALETTE)],
                alpha=1.0 if part.ended else HELD,
                edgecolor="white",
                label=None if part.campaign in named else label,
            )
            named.add(part.campaign)
            start += part.share
        taken = f"epsilon {block.epsilon_taken(dataset.limit):.4f}"
        style.note(axes, taken, (start, block.block), shift=(5, 0), va="center")
    axes.set_yticks(
        [block.block for block in dataset.blocks],
        [f"block {block.block}\n{block.size:,}" for block in dataset.blocks],
        color=style.INK,
        fontsize=9,
    )
    axes.set_ylim(len(dataset.blocks) - 0.5, -0.5)
    axes.set_xlabel(
        "share of the block's budget; shares add up, epsilons do not", color=style.QUIET, fontsize=9
    )
    axes.axvline(1.0, color=style.PROMISE, linewidth=1.2, linestyle="--")
    axes.set_xlim(0, 1.2)  # room for the words beside a full bar
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    style.in_percent(axes.xaxis)
    if named:
        figure.legend(loc="outside lower left", ncols=4, **style.LEGEND)
    return figure
