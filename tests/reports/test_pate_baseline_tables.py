"""Methods of private voting beside votes and student, run by run."""

from __future__ import annotations

import json

import pytest

from dpal.reports.pate_baseline_tables import compare_methods, methods_comparison_table
from dpal.reports.pate_sweeps import SweptVoting, sweep_comparison_records, sweep_tables
from tests.conftest import ROOT


def repetition(votes: float, dp_sgd: float, *, labels: bool = True):
    """Figures of one run: averaged over several labels, or of records with one."""

    def figures(value: float):
        several = {"averages": {"auc": value, "acc": 0.9}, "labels": {}}
        return {"figures": {"micro_f1": 0.1}, **several} if labels else {
            "figures": {"accuracy": value}
        }  # fmt: skip

    return {"pate": figures(votes), "dp_sgd": figures(dp_sgd)}


@pytest.mark.parametrize("labels", [True, False])
def test_methods_of_one_run_are_a_pair(labels):
    runs = [repetition(level, level + gain, labels=labels)
            for level, gain in ((0.5, 0.05), (0.8, 0.06), (0.7, 0.07))]  # fmt: skip
    comparison = compare_methods(*runs)["dp_sgd"]
    assert (comparison.pairs, comparison.verdict.name) == (3, "BETTER")
    assert comparison.difference == pytest.approx(0.06)
    [row] = methods_comparison_table(*runs, title="epsilon 8").rows
    assert row == ("DP-SGD", "better by 6.0 ± 2.5 points", "3")


def test_a_single_run_compares_nothing():
    assert methods_comparison_table(repetition(0.5, 0.6), title="epsilon 8").rows == ()


def test_a_sweep_compares_methods_in_each_combination():
    """Of runs that were really made, as docs/results.md tells of them."""
    summary = {"sigma": 1.0, "unanimous_turned": 0.0}
    path = ROOT / "docs" / "results" / "votes-scene.json"
    swept = [
        SweptVoting(summary=summary, **member)
        for member in json.loads(path.read_text(encoding="utf-8"))
    ]
    eight, twenty = sweep_comparison_records(swept)
    assert (eight["swept"], twenty["swept"]) == ({"privacy.epsilon": 8}, {"privacy.epsilon": 20})
    assert eight["comparisons"]["dp_sgd"]["verdict"] == "no_difference"
    assert twenty["comparisons"]["dp_sgd"]["verdict"] == "better"
    assert twenty["comparisons"]["dp_sgd"]["pairs"] == 3
    assert len(sweep_tables(swept)) == 4  # figures and comparisons of each combination
