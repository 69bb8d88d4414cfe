"""How all figures look: colors, titles, axes, legends, files. No global state is touched."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from dpal.files.atomic_writes import atomic_write

INK, QUIET, GRID = "#1f2933", "#52606d", "#e4e7eb"  # text, text beside it, lines behind it
BLUE, WARM, GREY, PROMISE, GREEN = "#2a6f97", "#d9822b", "#9aa5b1", "#c0392b", "#1b7f5c"
# Things side by side, in this order; pages have the same colors under the names s0, s1, ...
PALETTE = (BLUE, WARM, GREEN, "#7b4fa3", "#b2507b", "#5c6b3c", "#3aa6a0", "#8a5a3b")
MODE_COLORS = {"hidden": GREEN, "visible": BLUE, "paper": "#b26a00", "random": GREY}
LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False}
BARS = 0.8  # of the room that the bars of one group take

_DPI = 150

Along = Literal["x", "y", "both"]


def canvas(
    title: str, below: str = "", *, size: tuple[float, float], along: Along = "y", **grid: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure.

    Args:
      title: above all.
      below: a quiet line under the title.
      size: width and height in inches.
      along: which axis has lines behind what is drawn.
      grid: how many axes, as `Figure.subplots` takes it.

    Returns:
      The figure, and its axes row by row.
    """
    figure = Figure(figsize=size, layout="constrained")
    every = list(figure.subplots(squeeze=False, **grid).flat)
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=11, fontweight="bold")
    every[0].set_title(below, loc="left", fontsize=8, color=QUIET, pad=8)
    for axes in every:
        axes.grid(axis=along, color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if along == "x":
            axes.xaxis.set_major_locator(MaxNLocator(4))
    return figure, every


def legend_beside(axes: Axes, **more: Any) -> None:
    """A legend to the right of axes."""
    axes.legend(**LEGEND, loc="center left", bbox_to_anchor=(1.0, 0.5), **more)


def in_percent(axis: Axis, *, decimals: int | None = None) -> None:
    """Writes an axis of shares in per cent; None: as many decimals as tell its ticks apart."""
    axis.set_major_formatter(PercentFormatter(xmax=1, decimals=decimals))


def note(
    axes: Axes, text: str, place: tuple[float, float], *, shift: tuple[int, int], **more: Any
) -> None:
    """Writes a small text beside a point."""
    shown = {"fontsize": 8, "color": QUIET, **more}
    axes.annotate(text, place, xytext=shift, textcoords="offset points", **shown)


def promise_line(axes: Axes, epsilon: float, *, highest: float, at_right: bool = False) -> None:
    """Draws the epsilon that nothing may pass, with room above it and what is highest."""
    axes.axhline(epsilon, color=PROMISE, linewidth=1.2, linestyle="--", zorder=1)
    place, side, shift = (1, "right", -4) if at_right else (0, "left", 4)
    where = {"ha": side, "color": PROMISE, "xycoords": axes.get_yaxis_transform()}
    note(axes, f"promised: {epsilon:g}", (place, epsilon), shift=(shift, 3), **where)
    axes.set_ylim(0, 1.18 * max(epsilon, highest))


def colors_for(count: int) -> list[tuple[float, float, float, float]]:
    """Colors of things in an order: from dark to light, none so light that it fades on white."""
    scale = colormaps["viridis"]
    return [scale(0.9 * position / max(1, count - 1)) for position in range(count)]


def axis_positions(values: Iterable[Any]) -> tuple[dict[Any, float], bool]:
    """Where values stand, numbers at themselves and words in order; and whether all are numbers."""
    distinct = list(dict.fromkeys(values))
    numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in distinct
    )
    return {
        value: float(value) if numbers else float(position)
        for position, value in enumerate(distinct)
    }, numbers


def name_places(axes: Axes, places: dict[Any, float]) -> None:
    """Writes words under their places."""
    axes.set_xticks(list(places.values()), [str(word) for word in places])


def beside(group: int, of: int, count: int) -> list[float]:
    """Places of the bars of one group of several, each with so many bars, side by side."""
    return [place + (group - (of - 1) / 2) * BARS / of for place in range(count)]


def as_png(figure: Figure) -> bytes:
    """Renders a figure."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=_DPI)
    return stream.getvalue()


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure as PNG, all of it or nothing; returns where."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(as_png(figure))
    return path
