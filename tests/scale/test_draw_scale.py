"""The chart of time and memory by size draws what the document says."""

from __future__ import annotations

import json

import pytest

from tests.conftest import ROOT
from tests.scale.draw_scale import LAST, extrapolated, scale_figure, slope

MEASURED = json.loads((ROOT / "docs" / "results" / "scale.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_a_slope_is_the_power(power):
    points = [[size, 3 * size**power] for size in (10.0, 1e3, 1e5)]
    assert slope(points) == pytest.approx(power)
    assert extrapolated(points)[-1] == [LAST, pytest.approx(3 * LAST**power)]


def test_what_falls_by_chance_is_not_drawn_on():
    assert extrapolated([[10.0, 2.0], [100.0, 1.0]])[-1] == [LAST, 1.0]


def test_every_line_is_drawn_with_its_points_and_stands_in_the_document():
    figure = scale_figure(MEASURED)
    drawn = [line.get_label() for line in figure.axes[0].get_lines()]
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for line in MEASURED["lines"]:
        assert any(str(label).startswith(line["name"]) for label in drawn)
        for _, mib in line["mib"]:
            assert f"{mib:,}" in text
