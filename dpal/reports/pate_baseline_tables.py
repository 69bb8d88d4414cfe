"""Figures of several ways to learn from the same records, of one run or of repetitions of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpal.reports.intervals import TOGETHER
from dpal.reports.report import Table
from dpal.reports.sweeps import spread
from dpal.reports.validation_figures import percent
from dpal.simulation.paired_comparison import PairedComparison, compare_with_reference

Methods = Mapping[str, Mapping[str, Any]]  # by name: epsilon, figures, averages, labels

WORDS = {
    "pate": "votes and student",
    "non_private": "not private",
    "dp_sgd": "DP-SGD",
    "dp_sgd_adaptive": "DP-SGD, adaptive clipping",
    "private_knn": "privateKNN and student",
}
AVERAGES = {
    "acc": "ACC",
    "bac": "BAC",
    "auc": "AUC",
    "map": "MAP",
    "cf1_mean": "CF1 (mean of F1)",
    "cf1_harmonic": "CF1 (of CP, CR)",
    "of1": "OF1",
}


def methods_table(*runs: Methods, title: str = "") -> Table:
    """Every method's averages over the labels, by one module; means where there are several runs.

    Args:
      runs: methods of one run, or of its repetitions, which have the same ones.
      title: of the table; left out it says what is averaged.
    """
    first = runs[0]
    keys = [key for key in AVERAGES if any(key in averages(method) for method in first.values())]
    rows = []
    for name in first:
        mine = [run[name] for run in runs if name in run]
        epsilons = [repetition["epsilon"] for repetition in mine]
        spent = "none" if None in epsilons else f"{max(epsilons):.4f}"
        cells = [
            mean_and_spread(averages(repetition).get(key) for repetition in mine) for key in keys
        ]
        protects = str(mine[0].get("protects", "record"))
        if not keys:
            cells = [_in_percent([repetition["figures"]["accuracy"] for repetition in mine])]
        rows.append((WORDS[name], spent, protects, *cells))
    columns = [AVERAGES[key] for key in keys] or ["accuracy"]
    usual = "Methods, figures averaged over labels" if keys else "Methods"
    return Table(title or usual, ("method", "epsilon", "protects", *columns), tuple(rows))


def compare_methods(*runs: Methods) -> dict[str, PairedComparison]:
    """Every other method beside votes and student, run by run.

    What is compared is the AUC averaged over labels, or accuracy where records have one label.

    Args:
      runs: methods of the repetitions of one run, whose seeds they share.
    """
    reached: dict[str, dict[int, float]] = {}
    for number, run in enumerate(runs):
        for name, method in run.items():
            value = averages(method).get("auc", method["figures"].get("accuracy"))
            if value is not None:
                reached.setdefault(name, {})[number] = value
    return compare_with_reference(reached, "pate") if "pate" in reached else {}


def methods_comparison_table(*runs: Methods, title: str) -> Table:
    """The same in words; empty where nothing was repeated."""
    rows = tuple(
        (WORDS[name], comparison.in_words(), str(comparison.pairs))
        for name, comparison in compare_methods(*runs).items()
        if comparison.pairs > 1
    )
    about = "AUC" if has_labels(runs[0]) else "accuracy"
    return Table(f"{title}: {about} beside {WORDS['pate']}, run by run; {TOGETHER}",
                 ("method", "difference", "runs"), rows)  # fmt: skip


def has_labels(methods: Methods) -> bool:
    """Whether there are figures of every label: not where each record has a single one."""
    return "labels" in methods["pate"]


def labels_table(*runs: Methods, figure: str, more: str = "") -> Table:
    """One figure of every label and method.

    Args:
      runs: methods of one run, or of its repetitions.
      figure: which one.
      more: of the title.
    """
    rows = tuple(
        (
            label,
            f"{about['records']:.0f}",
            *(
                mean_and_spread(of_label(run, name, label, figure) for run in runs)
                for name in runs[0]
            ),
        )
        for label, about in runs[0]["pate"]["labels"].items()
    )
    columns = ("label", "with it", *(WORDS[name] for name in runs[0]))
    return Table(f"{AVERAGES[figure]} of each label{more}", columns, rows)


def averages(method: Mapping[str, Any]) -> Mapping[str, float]:
    """Averages of a method over the labels; none where each record has a single one."""
    means: Mapping[str, float] = method.get("averages", {})
    return means


def mean_and_spread(values: Iterable[float | None]) -> str:
    """A mean, with the standard deviation of several values; "-" where none is known."""
    sound = known_of(values)
    deviation = f" ± {spread(sound):.3f}" if len(sound) > 1 else ""
    return f"{statistics.fmean(sound):.3f}{deviation}" if sound else "-"


def _in_percent(values: Sequence[float]) -> str:
    return percent(values[0]) if len(values) == 1 else mean_and_spread(values)


def of_label(run: Methods, name: str, label: str, figure: str) -> float | None:
    """One figure of one label by one method; None where there is none."""
    value = run.get(name, {}).get("labels", {}).get(label, {}).get(figure)
    return None if value is None else float(value)


def known_of(values: Iterable[float | None]) -> list[float]:
    """Values that there are."""
    return [value for value in values if value is not None]
