"""The report of private voting: the student beside other ways to learn, label by label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.reports.pate_baseline_tables import (
    WORDS,
    Methods,
    averages,
    has_labels,
    labels_table,
    methods_table,
)
from dpal.reports.plan_and_phase_tables import terms
from dpal.reports.plots.pate_baselines_by_label import labels_figure
from dpal.reports.plots.style import as_png
from dpal.reports.report import (
    Block,
    Picture,
    Report,
    ReportSection,
    capital,
    section,
    table,
)
from dpal.reports.run_report import RunFacts, run_report
from dpal.reports.validation_figures import figures_in, headline, percent
from dpal.reports.vote_report import (
    certified_votes,
    not_of_votes,
    rule_words,
    spent_on_votes,
)

_OTHERS = (
    "other methods were run on the same private records for comparing, each under an account of "
    "its own, and each protects what its row says: publishing several of them adds their epsilons "
    "up where they protect the same. What is not private is for "
    "nobody's eyes but those who may see the records; its model was not kept."
)
_PLURAL = ("powerset", "gnmax")  # of which the share is a union bound
_CLOSE = 0.01  # differences of a figure that are not spoken of


def pate_report(facts: RunFacts, metrics: Mapping[str, Any], methods: Methods) -> Report:
    """Tells private voting and its student.

    Args:
      facts: what every run has; the summary is that of the certified plan.
      metrics: of the student.
      methods: figures of every method.
    """
    summary = facts.summary
    name, value = headline(metrics)
    shown = ("auc", "bac") if has_labels(methods) else ()
    labels = [block for figure in shown for block in _of_labels(summary, methods, figure)]
    rule = f"{capital(rule_words(summary))}. {metrics['labels']:,} public records have a released"
    several = len(methods) > 1
    return run_report(
        facts,
        covered=f"the released labels and the student of this {facts.run}" if several else "",
        promised_by=certified_votes(summary),
        spent=spent_on_votes(summary),
        sections=(
            section(
                "Teachers and votes", f"{rule} label.", *method_findings(summary, metrics, methods)
            ),
            *([_rounds(metrics["rounds"])] if "rounds" in metrics else []),
            section("What it bought", methods_table(methods), *labels),
        ),
        uncovered=(
            "public records, their released labels, the validation set and every figure on it are "
            "not protected",
            *([_OTHERS] if several else []),
            *not_of_votes(summary),
        ),
        cards=(
            (f"{metrics['labels']:,}", "labels released", "for public records"),
            (percent(value), f"{name} of the student", "on the validation set"),
        ),
    )


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> ReportSection:
    """Which public records were asked in each round, and why."""
    rows = (
        {
            "round": told["round"],
            "asked": f"{told['asked']:,}",
            "answered": percent(told["answered"]),
            "chosen": "by chance" if told["unsure"] is None else "by a student of earlier answers",
            "unsure": _unsure(told["unsure"]),
            "unsure of all that were left": _unsure(told["unsure_of_others"]),
        }
        for told in rounds
    )
    return section(
        "Which records were asked",
        "Each round asks the public records that a student of the answers so far is least sure of, "
        "or some by chance. The choice reads public records and released answers alone, so that it "
        "costs nothing; how many are asked was fixed beforehand. The files asked-1.parquet, "
        "asked-2.parquet and so on have every record with its score.",
        table("Rounds", rows),
    )


def _unsure(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


def method_findings(
    summary: Mapping[str, Any], metrics: Mapping[str, Any], methods: Methods
) -> list[str]:
    """Where votes win or lose, and why, in sentences."""
    said = []
    mine = _figure_of(methods["pate"])
    rivals = {
        name: _figure_of(method) for name, method in methods.items() if name.startswith("dp_sgd")
    }
    measured = {name: value for name, value in rivals.items() if value is not None}
    if mine is not None and measured:
        best = max(measured, key=lambda name: measured[name])
        apart = mine[1] - measured[best][1]
        if abs(apart) < _CLOSE:
            verdict = f"are level with {WORDS[best]}"
        else:
            verdict = f"{'win over' if apart > 0 else 'lose to'} {WORDS[best]}"
        said.append(f"Votes {verdict}: {mine[0]} {mine[1]:.3f} against {measured[best][1]:.3f}.")
    turned = summary["unanimous_turned"]
    reasons = []
    if turned > _CLOSE:
        upto = "up to " if summary["mechanism"] in _PLURAL else ""
        helps = "more teachers, fewer queries or a mechanism that releases less would help"
        if summary.get("near") is not None:
            helps = "more neighbours of a query, or fewer votes of a record, would help"
        voters = "teachers" if summary.get("near") is None else "neighbours"
        reasons.append(
            f"noise turns {upto}{percent(turned)} of the votes on which all {summary['teachers']} "
            f"{voters} agree: {helps}"
        )
    right, usual = metrics.get("released_right"), metrics.get("always_usual_right")
    if right is not None and usual is not None and right < usual:
        reasons.append(
            f"released labels are right in {percent(right)} of the answers, and always giving the "
            f"usual answer would be in {percent(usual)}"
        )
    elif right is not None:
        reasons.append(f"released labels are right in {percent(right)} of the answers")
    if summary["unit"] == "group" and measured:
        reasons.append("votes protect all records of a group, DP-SGD here a single one")
    if metrics["labels"] < 100:
        reasons.append(f"the student learns from {metrics['labels']} records alone")
    if reasons:
        said.append(f"{capital('; '.join(reasons))}.")
    return said


def _of_labels(summary: Mapping[str, Any], methods: Methods, figure: str) -> tuple[Block, ...]:
    """One figure of every label, as a table and as bars."""
    below = f"epsilon {summary['epsilon']:.4f} of {summary['target_epsilon']:g}, {terms(summary)}"
    drawn = labels_figure(methods, figure=figure, below=below)
    figures = labels_table(methods, figure=figure)
    alt = f"{figures.title}, as in the table: {', '.join(WORDS[name] for name in methods)}."
    return figures, Picture(name=f"labels-{figure}", alt=alt, png=as_png(drawn))


def _figure_of(method: Mapping[str, Any]) -> tuple[str, float] | None:
    means = averages(method)
    if "auc" in means:
        return "AUC", means["auc"]
    if means:
        return None
    return next(iter(figures_in(method["figures"], prefix="").items()), None)
