"""The report of private voting: the student beside other ways to learn, label by label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dpal.accounting.cohorts import Accountant
from dpal.certificate.promise import VOTES
from dpal.reports.commands import ELSEWHERE, TRUSTED
from dpal.reports.render.figures import (
    BLUE,
    GREY,
    PROMISE,
    WARM,
    dress,
    headline,
)
from dpal.reports.summary import Table, promise
from dpal.reports.validation import figures_in, percent
from dpal.reports.vote_tables import cost_table, rule_words

WORDS = {
    "pate": "votes and student",
    "non_private": "not private",
    "dp_sgd": "DP-SGD",
    "dp_sgd_adaptive": "DP-SGD, adaptive clipping",
    "private_knn": "privateKNN and student",
}
COLORS = {"pate": BLUE, "non_private": GREY, "dp_sgd": WARM, "dp_sgd_adaptive": PROMISE}
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
    " Other methods were run on the same private records for comparing, each under an account of "
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
        f"{AVERAGES.get(figure, figure)} of each label",
        ("label", "with it", *(WORDS[name] for name in methods)),
        tuple(rows),
    )


def pate_report(
    summary: Mapping[str, Any],
    metrics: Mapping[str, Any],
    methods: Mapping[str, Mapping[str, Any]],
    *,
    figures: Sequence[str],
    certificate: str,
) -> str:
    """Writes the report as Markdown.

    Args:
      summary: of the certified plan.
      metrics: of the student.
      methods: figures of every method.
      figures: paths of pictures, relative to the report.
      certificate: digest of the certificate.
    """
    bound = VOTES[Accountant(summary["accountant"])]
    parts = [
        f"# Private voting {summary['name']}",
        f"Promised: {promise(summary)}. What all queries cost whatever the votes are, by "
        f"{bound.method}, which keeps the promise: {summary['epsilon']:.4f}; by another program, "
        f"for information: {summary['epsilon_oracle']:.4f}.",
        f"{rule_words(summary)[0].upper()}{rule_words(summary)[1:]}. {metrics['labels']:,} public "
        "records have a released label.",
        *told(summary, metrics, methods),
    ]
    tables = [methods_table(methods), cost_table(summary)]
    if "labels" in methods["pate"]:
        tables += [labels_table(methods, "auc"), labels_table(methods, "bac")]
    for table in tables:
        parts += [f"## {table.title}", table.markdown()]
    parts += [f"![{path}]({path})" for path in figures]
    parts += [
        "## What this does not protect",
        "Public records, their released labels, the validation set and every figure on it."
        + (_OTHERS if len(methods) > 1 else ""),
        f"Plan: `{summary['plan_digest']}`. Certificate: `certificate.json`, digest "
        f"`{certificate}`; who signed it stands in `certificate.dsse.json`. Check it on any "
        f"machine (MODEL is `phase-0/model.safetensors`): `{ELSEWHERE}`. {TRUSTED}",
    ]
    return "\n\n".join(parts) + "\n"


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
        joined = "; ".join(reasons)
        said.append(f"{joined[0].upper()}{joined[1:]}.")
    return said


def labels_figure(
    summary: Mapping[str, Any], methods: Mapping[str, Mapping[str, Any]], figure: str = "auc"
) -> Figure:
    """Bars of one figure, label by label and method by method."""
    labels = list(methods["pate"]["labels"])
    drawn = Figure(figsize=(max(6.4, 0.52 * len(labels) + 2.5), 3.8), layout="constrained")
    axes = drawn.subplots()
    width = 0.8 / len(methods)
    for at, (name, one) in enumerate(methods.items()):
        values = [one.get("labels", {}).get(label, {}).get(figure) for label in labels]
        heights = [np.nan if value is None else value for value in values]
        places = np.arange(len(labels)) + (at - (len(methods) - 1) / 2) * width
        color = COLORS.get(name, "#1b7f5c")
        axes.bar(places, heights, width, label=WORDS[name], color=color)
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
    axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle="--")
    axes.set_ylim(0, 1)
    axes.set_ylabel(AVERAGES.get(figure, figure))
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    dress(axes)
    headline(
        drawn,
        f"{AVERAGES.get(figure, figure)} of each label",
        f"epsilon {summary['epsilon']:.3f} of {summary['target_epsilon']:g}, delta "
        f"{summary['delta']:.3g}, adjacency {summary['adjacency']}, unit {summary['unit']}",
    )
    return drawn


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
