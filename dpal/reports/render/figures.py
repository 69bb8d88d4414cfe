"""What all figures have in common: colors, headlines and axes, without any global state."""

from __future__ import annotations

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

INK, QUIET, GRID = "#1f2933", "#52606d", "#e4e7eb"  # text, text beside it, lines behind it
BLUE, WARM, GREY, PROMISE = "#2a6f97", "#d9822b", "#9aa5b1", "#c0392b"
MODE_COLORS = {"hidden": "#1b7f5c", "visible": BLUE, "paper": "#b26a00", "random": GREY}


def headline(figure: Figure, title: str, below: str) -> None:
    """A title, and a quiet line below it, above the first axes."""
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=11, fontweight="bold")
    figure.axes[0].set_title(below, loc="left", fontsize=8, color=QUIET, pad=8)


def dress(axes: Axes, *, along: str = "y") -> None:
    """Light axes with lines along one of them."""
    axes.grid(axis="y" if along == "y" else "x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if along == "x":
        axes.xaxis.set_major_locator(MaxNLocator(4))


def note(
    axes: Axes,
    text: str,
    place: tuple[float, float],
    *,
    shift: tuple[int, int],
    ha: str = "left",
    va: str = "baseline",
) -> None:
    """A small text beside a point."""
    axes.annotate(
        text,
        place,
        xytext=shift,
        textcoords="offset points",
        ha=ha,
        va=va,
        fontsize=8,
        color=QUIET,
    )


def colors_for(count: int) -> list[tuple[float, float, float, float]]:
    """From dark to light, none so light that it fades on white."""
    scale = colormaps["viridis"]
    return [scale(0.9 * at / max(1, count - 1)) for at in range(count)]
