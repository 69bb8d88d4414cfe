"""The report of private voting: the student beside other ways to learn, label by label."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpal.reports.figures.style import as_png
from dpal.reports.figures.votes import labels_figure
from dpal.reports.report import Block, Picture, Report, Section, Table
from dpal.reports.run_report import RunFacts, run_report
from dpal.reports.summary import terms
from dpal.reports.validation import figures_in, headline, percent
from dpal.reports.vote_tables import (
    capital,
    certified_votes,
    not_of_votes,
    rule_words,
    spent_on_votes,
)

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
_OTHERS = (
    "other methods were run on the same private records for comparing, each under an account of "
    "its own: publishing several of them adds their epsilons up. What is not private is for "
    "nobody's eyes but those who may see the records; its model was not kept."
)
_PLURAL = ("powerset", "gnmax")  # of which the share is a union bound
_CLOSE = 0.01  # differences of a figure that are not spoken of


def methods_table(methods: Mapping[str, Mapping[str, Any]]) -> Table:
    """Every method's averages over the labels, by one module."""
    known = [key for key in AVERAGES if any(key in _averages(one) for one in methods.values())]
    if not known:
        return _single_table(methods)
    rows = []
    for name, one in methods.items():
        averages = _averages(one)
        cells = [f"{averages[key]:.3f}" if key in averages else "-" for key in known]
        rows.append((WORDS[name], _epsilon(one), str(one.get("protects", "record")), *cells))
    return Table(
        "Methods, figures averaged over labels",
        ("method", "epsilon", "protects", *(AVERAGES[key] for key in known)),
        tuple(rows),
    )


def labels_table(methods: Mapping[str, Mapping[str, Any]], figure: str = "auc") -> Table:
    """One figure of every label and method."""
    labels = methods["pate"]["labels"]
    rows = []
    for name, about in labels.items():
        cells = [_cell(one.get("labels", {}).get(name, {}).get(figure)) for one in methods.values()]
        rows.append((name, f"{about['records']:.0f}", *cells))
    return Table(
        f"{AVERAGES[figure]} of each label",
        ("label", "with it", *(WORDS[name] for name in methods)),
        tuple(rows),
    )


def pate_report(
    facts: RunFacts, metrics: Mapping[str, Any], methods: Mapping[str, Mapping[str, Any]]
) -> Report:
    """Tells private voting and its student.

    Args:
      facts: what every run has; the summary is that of the certified plan.
      metrics: of the student.
      methods: figures of every method.
    """
    summary = facts.summary
    name, value = headline(metrics)
    labels: list[Block] = []
    if "labels" in methods["pate"]:
        for figure in ("auc", "bac"):
            labels += [labels_table(methods, figure), labels_picture(summary, methods, figure)]
    return run_report(
        facts,
        promised_by=certified_votes(summary),
        spent=spent_on_votes(summary),
        sections=(
            Section(
                "Teachers and votes",
                (
                    f"{capital(rule_words(summary))}. {metrics['labels']:,} public records have a "
                    "released label.",
                    *told(summary, metrics, methods),
                ),
            ),
            Section("What it bought", (methods_table(methods), *labels)),
        ),
        uncovered=(
            "public records, their released labels, the validation set and every figure on it are "
            "not protected",
            *([_OTHERS] if len(methods) > 1 else []),
            *not_of_votes(),
        ),
        cards=(
            (f"{metrics['labels']:,}", "labels released", "for public records"),
            (percent(value), f"{name} of the student", "on the validation set"),
        ),
    )


def told(
    summary: Mapping[str, Any],
    metrics: Mapping[str, Any],
    methods: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Where votes win or lose, and why, in sentences."""
    said = []
    mine = _figure_of(methods["pate"])
    rivals = {name: _figure_of(one) for name, one in methods.items() if name.startswith("dp_sgd")}
    known = {name: value for name, value in rivals.items() if value is not None}
    if mine is not None and known:
        best = max(known, key=lambda name: known[name])
        apart = mine[1] - known[best][1]
        if abs(apart) < _CLOSE:
            verdict = f"are level with {WORDS[best]}"
        else:
            verdict = f"{'win over' if apart > 0 else 'lose to'} {WORDS[best]}"
        said.append(f"Votes {verdict}: {mine[0]} {mine[1]:.3f} against {known[best][1]:.3f}.")
    turned = summary["unanimous_turned"]
    reasons = []
    if turned > _CLOSE:
        upto = "up to " if summary["mechanism"] in _PLURAL else ""
        reasons.append(
            f"noise turns {upto}{turned:.1%} of the votes on which all {summary['teachers']} "
            "teachers agree: more teachers, fewer queries or a mechanism that releases less would "
            "help"
        )
    right, usual = metrics.get("released_right"), metrics.get("always_usual_right")
    if right is not None and usual is not None and right < usual:
        reasons.append(
            f"released labels are right in {right:.1%} of the answers, and always giving the usual "
            f"answer would be in {usual:.1%}"
        )
    elif right is not None:
        reasons.append(f"released labels are right in {right:.1%} of the answers")
    if summary["unit"] == "group" and known:
        reasons.append("votes protect all records of a group, DP-SGD here a single one")
    if metrics["labels"] < 100:
        reasons.append(f"the student learns from {metrics['labels']} records alone")
    if reasons:
        said.append(f"{capital('; '.join(reasons))}.")
    return said


def labels_picture(
    summary: Mapping[str, Any], methods: Mapping[str, Mapping[str, Any]], figure: str
) -> Picture:
    """Bars of one figure, label by label and method by method."""
    labels, called = list(methods["pate"]["labels"]), AVERAGES[figure]
    values = {
        name: (WORDS[name], [(_of_label(one, label, figure), 0.0) for label in labels])
        for name, one in methods.items()
    }
    below = f"epsilon {summary['epsilon']:.3f} of {summary['target_epsilon']:g}, {terms(summary)}"
    title = f"{called} of each label"
    drawn = labels_figure(title, below, labels, values, figure=called)
    alt = f"{title}, as in the table: {', '.join(called for called, _ in values.values())}."
    return Picture(name=f"labels-{figure}", alt=alt, png=as_png(drawn))


def _of_label(one: Mapping[str, Any], label: str, figure: str) -> float:
    value = one.get("labels", {}).get(label, {}).get(figure)
    return math.nan if value is None else float(value)


def _single_table(methods: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        (WORDS[name], _epsilon(one), percent(one["figures"]["accuracy"]))
        for name, one in methods.items()
    ]
    return Table("Methods", ("method", "epsilon", "accuracy"), tuple(rows))


def _averages(one: Mapping[str, Any]) -> Mapping[str, float]:
    found: Mapping[str, float] = one.get("averages", {})
    return found


def _figure_of(one: Mapping[str, Any]) -> tuple[str, float] | None:
    averages = _averages(one)
    if "auc" in averages:
        return "AUC", averages["auc"]
    if averages:
        return None
    return next(iter(figures_in(one["figures"], prefix="").items()), None)


def _epsilon(one: Mapping[str, Any]) -> str:
    return "none" if one["epsilon"] is None else f"{one['epsilon']:.3f}"


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
