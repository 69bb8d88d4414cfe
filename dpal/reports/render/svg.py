"""Charts as inline SVG: colors come from the page's style, in light, dark and print.

Nothing is loaded and nothing runs. Each chart carries its numbers as a text that is read
aloud where it cannot be seen.
"""

from __future__ import annotations

from markupsafe import Markup

from dpal.reports.charts import Axis, Chart, Line

_WIDTH, _HEIGHT = 480.0, 270.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 14.0, 18.0, 40.0


def svg_of(chart: Chart) -> Markup:
    """Draws a chart as one svg element; every text in it is escaped."""
    x, y = chart.x, chart.y
    opening = Markup('<svg class="chart" role="img" viewBox="0 0 {} {}" aria-label="{}">')
    parts = [opening.format(f"{_WIDTH:g}", f"{_HEIGHT:g}", chart.alt), *_grid(x, y)]
    if chart.limit is not None:
        top = _high(chart.limit, y)
        parts += [_across("limit", top), _text(chart.limit_name, _LEFT + 6, top - 5, "limit-name")]
    parts += [_band(line, x, y) for line in chart.lines if line.band]
    for line in chart.lines:
        parts += _line(line, x, y)
    return Markup("\n").join([*parts, Markup("</svg>")])


def _grid(x: Axis, y: Axis) -> list[Markup]:
    floor, parts = _HEIGHT - _BOTTOM, []
    for value in y.ticks:
        top = _high(value, y)
        parts += [_across("grid", top), _text(y.written(value), _LEFT - 7, top + 3.5, "tick end")]
    for value in x.ticks:
        parts.append(_text(x.written(value), _wide(value, x), floor + 16, "tick middle"))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    return [
        *parts,
        _text(x.title, middle, _HEIGHT - 5, "axis middle"),
        _text(y.title, 2, 10, "axis"),
    ]


def _line(line: Line, x: Axis, y: Axis) -> list[Markup]:
    places = [(_wide(position, x), _high(value, y)) for position, value in line.points]
    joined = " ".join(f"{_n(left)},{_n(top)}" for left, top in places)
    dot = Markup('<circle class="dot {}" cx="{}" cy="{}" r="3.2"/>')
    parts = [
        Markup('<polyline class="line {}" points="{}"/>').format(line.style, joined),
        *(dot.format(line.style, _n(left), _n(top)) for left, top in places),
    ]
    for (left, top), label in zip(places, line.labels, strict=False):
        inside = min(max(left, _LEFT + 16), _WIDTH - _RIGHT - 16)
        parts.append(_text(label, inside, top - 9, "value middle"))
    return parts


def _band(line: Line, x: Axis, y: Axis) -> Markup:
    """The area between the lowest and the highest values around a line, behind all lines."""
    places = [position for position, _ in line.points]
    lowest = [(place, low) for place, (low, _) in zip(places, line.band, strict=True)]
    highest = [(place, high) for place, (_, high) in zip(places, line.band, strict=True)]
    joined = " ".join(
        f"{_n(_wide(place, x))},{_n(_high(min(max(value, y.low), y.high), y))}"
        for place, value in [*lowest, *reversed(highest)]
    )
    return Markup('<polygon class="band {}" points="{}"/>').format(line.style, joined)


def _across(style: str, top: float) -> Markup:
    line = Markup('<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/>')
    return line.format(style, _n(_LEFT), _n(_WIDTH - _RIGHT), _n(top), _n(top))


def _text(words: str, x: float, y: float, style: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(style, _n(x), _n(y), words)


def _wide(value: float, x: Axis) -> float:
    return _LEFT + x.share(value) * (_WIDTH - _LEFT - _RIGHT)


def _high(value: float, y: Axis) -> float:
    return _HEIGHT - _BOTTOM - y.share(value) * (_HEIGHT - _TOP - _BOTTOM)


def _n(value: float) -> str:
    return f"{value:.2f}"
