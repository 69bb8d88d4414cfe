"""Line charts as values: drawn as SVG on pages, and as PNG beside Markdown and elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

REST = "rest"  # style of what stands beside a series, such as records that were never selected
STYLES = tuple(f"s{number}" for number in range(8))  # of lines and bars; further ones begin anew


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points that belong together.

    Attributes:
      name: what they are, for the legend.
      points: x and y, in order.
      style: one of `STYLES`, or `REST`.
      labels: written above the points; empty for none.
      band: lowest and highest value around each point, such as those of an interval; empty for
        none.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    style: str
    labels: tuple[str, ...] = ()
    band: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One side of a chart.

    Attributes:
      title: what it counts.
      low: where it begins.
      high: where it ends.
      ticks: marked values.
      percent: whether values are shares, and written as percentages.
    """

    title: str
    low: float
    high: float
    ticks: tuple[float, ...]
    percent: bool = False

    def share(self, value: float) -> float:
        """How far along the axis a value stands, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    def written(self, value: float) -> str:
        """A value as it stands beside its mark."""
        return f"{100 * value:g} %" if self.percent else f"{value:,g}"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over two axes.

    Attributes:
      name: of its file, without ending.
      title: above it.
      lines: in the order in which they are drawn; a legend names them where there are several.
      x: the horizontal axis.
      y: the vertical one.
      alt: the same in words, with the numbers.
      limit: height of a line across that nothing may pass.
      limit_name: what is written beside it.
      below: a quiet line under the title.
    """

    name: str
    title: str
    lines: tuple[Line, ...]
    x: Axis
    y: Axis
    alt: str
    limit: float | None = None
    limit_name: str = ""
    below: str = ""


def style_of(number: int) -> str:
    """The style of one of several things side by side."""
    return STYLES[number % len(STYLES)]


def axis(
    title: str, low: float, high: float, *, percent: bool = False, whole: bool = False
) -> Axis:
    """An axis over a range, with about five round marks."""
    room = max(high - low, 1e-9)
    raw = room / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, float(math.ceil(step)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(round(number * step, 10) for number in range(first, last + 1))
    return Axis(title=title, low=low, high=max(high, low + 1e-9), ticks=ticks, percent=percent)
