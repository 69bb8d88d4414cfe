"""Figure of an improvement: the most central public record of each cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dpal.reports.plots import style

_RIGHT, _WRONG = "#2e9f57", "#cf3c3c"
_ACROSS, _MOST = 10, 100  # pictures in a row, as in the paper's figure, and in all


@dataclass(frozen=True, kw_only=True, eq=False)
class Central:
    """The most central public record of one cluster.

    Attributes:
      image: (height, width) or (height, width, 3) pixels from 0 to 255.
      predicted: by the model before fine-tuning.
      label: that was bought; None where it is none of single classes.
    """

    image: NDArray[np.uint8]
    predicted: str
    label: str | None


def central_figure(examples: Sequence[Central]) -> Figure:
    """The most central public record of each cluster; green where the start was right.

    Where it was wrong the prediction stands to the left and the label to the right.

    Source: Zhao et al. (2019), Fig. 4b.
    """
    shown = examples[:_MOST]
    across = min(_ACROSS, max(1, len(shown)))
    down = math.ceil(len(shown) / across)
    figure = Figure(figsize=(0.72 * across, 0.78 * down + 0.5), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, example in zip(grid.flat, shown, strict=False):
        axes.set_axis_on()
        axes.set_xticks([])
        axes.set_yticks([])
        axes.imshow(example.image, cmap="gray", vmin=0, vmax=255)
        right = example.label == example.predicted
        color = style.GREY if example.label is None else _RIGHT if right else _WRONG
        for edge in axes.spines.values():
            edge.set_edgecolor(color)
            edge.set_linewidth(2)
        if example.label is not None and not right:
            words = f"{example.predicted} | {example.label}"
            axes.set_xlabel(words, fontsize=6, color=style.INK, labelpad=1)
    figure.suptitle(
        "Most central public record of each cluster (wrong ones: prediction | label)",
        fontsize=9,
        color=style.QUIET,
    )
    return figure
