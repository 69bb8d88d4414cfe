"""Sweeps as numbers: what differs beyond noise is taken repetition by repetition."""

from __future__ import annotations

import pytest

from dpal.reports.plots.sweeps import sweep_figure
from dpal.reports.sweeps import (
    comparison_records,
    points_of,
    points_table,
    sweep_comparison_table,
    sweep_report,
)

PROMISE = {"target_epsilon": 8, "delta": 1e-5, "adjacency": "zero_out", "unit": "record"}


def record(reached: float, seed: int, **swept: object):
    return {
        **PROMISE,
        "swept": swept,
        "repeated": {"model.seed": seed},
        "campaign_epsilon": 7.9,
        "validation_accuracy": reached,
    }


METHODS = [
    record(level + gain, seed, labels=labels, method=method)
    for labels in (100, 200)
    for method, gain in (("entropy", 0.02), ("random", 0.0))
    for seed, level in ((2, 0.9 + gain / 10), (0, 0.5), (1, 0.7))
]


def test_lines_are_compared_with_random_at_each_x():
    keys = ["labels", "method"]
    points = points_of(METHODS, keys)
    found = comparison_records(points, keys)
    assert [(row["labels"], row["line"], row["runs"]) for row in found] == [
        (100, "entropy", 3), (100, "random", 3), (200, "entropy", 3), (200, "random", 3),
    ]  # fmt: skip
    for row in found:
        assert (row["beside_reference"] is None) == (row["line"] == "random")
    # Levels differ by 40 points between seeds, and not between the methods of one seed.
    first = found[0]["beside_reference"]
    assert (first["verdict"], first["pairs"]) == ("better", 3)
    assert first["difference"] == pytest.approx(0.02 + 0.002 / 3)
    assert found[0]["half_width"] > 0.4 > 0.01 > first["half_width"]
    shown = sweep_comparison_table(points, keys)
    assert [row[:2] for row in shown.rows] == [("100", "entropy"), ("200", "entropy")]
    assert "random" in shown.title
    assert "better by 2.1 ± 0.3 points" in sweep_report(points, METHODS, keys)


def test_values_of_one_setting_are_compared_with_the_first():
    records = [
        record(0.7 + 0.1 * lr + seed / 100, seed, rate=lr) for lr in (1, 2) for seed in (0, 1)
    ]
    points = points_of(records, ["rate"])
    shown = sweep_comparison_table(points, ["rate"])
    assert [row[0] for row in shown.rows] == ["2"]
    assert "rate 1" in shown.title


def test_repetitions_are_paired_by_what_they_repeat():
    """The second method was refused for seed 0: one pair is left, which says nothing."""
    kept = [row for row in METHODS if row["swept"]["labels"] == 100]
    kept = [
        row
        for row in kept
        if row["swept"]["method"] == "random" or row["repeated"]["model.seed"] == 1
    ]
    points = points_of(kept, ["labels", "method"])
    rows = comparison_records(points, ["labels", "method"])
    [comparison] = [row["beside_reference"] for row in rows if row["beside_reference"]]
    assert comparison["pairs"] == 1
    assert comparison["difference"] == pytest.approx(0.02)
    assert comparison["half_width"] is None
    assert sweep_comparison_table(points, ["labels", "method"]).rows == ()


def test_where_the_reference_was_refused_nothing_is_compared():
    kept = [row for row in METHODS if row["swept"] != {"labels": 200, "method": "random"}]
    points = points_of(kept, ["labels", "method"])
    rows = sweep_comparison_table(points, ["labels", "method"]).rows
    assert [row[:2] for row in rows] == [("100", "entropy")]


def test_single_runs_have_no_interval():
    points = points_of([record(0.7, 0, rate=1), record(0.8, 0, rate=2)], ["rate"])
    assert [row[2] for row in points_table(points, ["rate"]).rows] == ["70.00 %", "80.00 %"]
    assert sweep_comparison_table(points, ["rate"]).rows == ()


LISTS = [
    record(level + seed / 100, seed, hidden=hidden, method=method)
    for hidden, level in (([4], 0.6), ([6, 4], 0.7), (None, 0.5))
    for method in ("random", "entropy")
    for seed in (0, 1)
]


@pytest.mark.parametrize(
    ("keys", "first", "line", "cells"),
    [
        (["hidden", "method"], "[4]", "random", ("[4]", "[6, 4]", "None")),
        (["method", "hidden"], "random", "hidden [4]", ("random", "entropy")),
    ],
)
def test_lists_are_values_as_well(keys: list[str], first: str, line: str, cells: tuple[str, ...]):
    points = points_of(LISTS, keys)
    assert [point.runs for point in points] == [2] * 6
    assert (points[0].x, points[0].line) == (first, line)
    assert {row[0] for row in points_table(points, keys).rows} == set(cells)
    assert {row[keys[0]] for row in comparison_records(points, keys)} >= {first}
    sweep_report(points, LISTS, keys)
    [ticks] = [axes.get_xticklabels() for axes in sweep_figure(points, keys[0]).axes]
    assert tuple(tick.get_text() for tick in ticks) == cells


def test_lists_of_one_setting_are_compared_with_the_first():
    points = points_of([one for one in LISTS if one["swept"]["method"] == "random"], ["hidden"])
    shown = sweep_comparison_table(points, ["hidden"])
    assert [row[0] for row in shown.rows] == ["[6, 4]", "None"]
    assert "hidden [4]" in shown.title
