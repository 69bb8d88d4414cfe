"""Line charts as inline SVG: colors come from the page's style, in light, dark and print.

Nothing is loaded and nothing runs. Each chart carries its numbers as a text that is read
aloud where it cannot be seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

_WIDTH, _HEIGHT = 480.0, 270.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 14.0, 18.0, 40.0
SERIES = 8  # how many colors the page's style has for lines; further ones begin anew


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points that belong together.

    Attributes:
      name: what they are, for the legend.
      points: x and y, in order.
      style: class of the page's style, such as "s0".
      labels: written above the points; empty for none.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    style: str
    labels: tuple[str, ...] = ()


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

    def written(self, value: float) -> str:
        """A value as it stands beside its mark."""
        return f"{100 * value:g} %" if self.percent else f"{value:,g}"


def axis(
    title: str, low: float, high: float, *, percent: bool = False, whole: bool = False
) -> Axis:
    """An axis over a range, with about five round marks."""
    room = max(high - low, 1e-9)
    raw = room / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * one for one in (1, 2, 2.5, 5, 10) if unit * one >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, float(math.ceil(step)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(round(number * step, 10) for number in range(first, last + 1))
    return Axis(title=title, low=low, high=max(high, low + 1e-9), ticks=ticks, percent=percent)


def line_chart(
    lines: Sequence[Line],
    *,
    x: Axis,
    y: Axis,
    alt: str,
    limit: float | None = None,
    limit_name: str = "",
) -> Markup:
    """Draws lines.

    Args:
      lines: in the order in which they are drawn.
      x: the horizontal axis.
      y: the vertical one.
      alt: the same in words, with the numbers.
      limit: height of a line across that nothing may pass.
      limit_name: what is written beside it.

    Returns:
      One svg element; every text in it is escaped.
    """
    parts = [
        Markup('<svg class="chart" role="img" viewBox="0 0 {} {}" aria-label="{}">').format(
            f"{_WIDTH:g}", f"{_HEIGHT:g}", alt
        )
    ]
    parts += _grid(x, y)
    if limit is not None:
        at = _high(limit, y)
        parts.append(
            Markup('<line class="limit" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
                _n(_LEFT), _n(_WIDTH - _RIGHT), _n(at), _n(at)
            )
        )
        parts.append(_text(limit_name, _LEFT + 6, at - 5, "limit-name"))
    for one in lines:
        parts += _line(one, x, y)
    return Markup("\n").join([*parts, Markup("</svg>")])


def _grid(x: Axis, y: Axis) -> list[Markup]:
    floor, parts = _HEIGHT - _BOTTOM, []
    for value in y.ticks:
        at = _high(value, y)
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
                _n(_LEFT), _n(_WIDTH - _RIGHT), _n(at), _n(at)
            )
        )
        parts.append(_text(y.written(value), _LEFT - 7, at + 3.5, "tick end"))
    for value in x.ticks:
        parts.append(_text(x.written(value), _across(value, x), floor + 16, "tick middle"))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(_text(x.title, middle, _HEIGHT - 5, "axis middle"))
    parts.append(_text(y.title, 2, 10, "axis"))
    return parts


def _line(one: Line, x: Axis, y: Axis) -> list[Markup]:
    places = [(_across(at, x), _high(value, y)) for at, value in one.points]
    joined = " ".join(f"{_n(left)},{_n(top)}" for left, top in places)
    parts = [Markup('<polyline class="line {}" points="{}"/>').format(one.style, joined)]
    for left, top in places:
        parts.append(
            Markup('<circle class="dot {}" cx="{}" cy="{}" r="3.2"/>').format(
                one.style, _n(left), _n(top)
            )
        )
    for (left, top), label in zip(places, one.labels, strict=False):
        inside = min(max(left, _LEFT + 16), _WIDTH - _RIGHT - 16)
        parts.append(_text(label, inside, top - 9, "value middle"))
    return parts


def _text(words: str, x: float, y: float, style: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(style, _n(x), _n(y), words)


def _across(value: float, x: Axis) -> float:
    share = (value - x.low) / (x.high - x.low)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _high(value: float, y: Axis) -> float:
    share = (value - y.low) / (y.high - y.low)
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _n(value: float) -> str:
    return f"{value:.2f}"
