"""Charts of campaigns: what was spent by phase, and what labels bought for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from dpal.privacy import Unit
from dpal.reports.charts import REST, Chart, Line, axis, style_of
from dpal.reports.plan_and_phase_tables import cohort_words, labels_counted, terms
from dpal.reports.validation_figures import headline, percent, protection_words


def budget_chart(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> Chart:
    """Epsilon of every cohort by phase, as the ledger adds it up, under the promised line."""
    key, target = f"epsilon_{summary['accountant']}", summary["target_epsilon"]
    lines = []
    for number, name in enumerate(cohort["cohort"] for cohort in phases[-1]["cohorts"]):
        points = tuple(
            (float(phase["phase"]), float(cohort[key]))
            for phase in phases
            for cohort in phase["cohorts"]
            if cohort["cohort"] == name
        )
        style = style_of(number) if name.isdecimal() else REST
        lines.append(Line(name=cohort_words(name), points=points, style=style))
    told = "; ".join(
        f"{line.name}: " + ", ".join(f"{value:.2f}" for _, value in line.points) for line in lines
    )
    return Chart(
        name="budget",
        title="Privacy spent by cohort",
        below=terms(summary),
        lines=tuple(lines),
        x=axis("phase", 0, max(1, len(phases) - 1), whole=True),
        y=axis(f"epsilon ({summary['accountant'].upper()})", 0, target * 1.15),
        limit=target,
        limit_name=f"promised: {target:g}",
        alt=f"Epsilon by phase, from phase 0. {told}. Promised: {target:g}.",
    )


def learning_chart(
    phases: Sequence[Mapping[str, Any]], key: str = "labels", unit: str = Unit.RECORD
) -> Chart:
    """The headline figure over labels, or over `campaign_epsilon`; where groups count, over these.

    What a phase brought that bought no labels (self-training) is a line of its own.
    """
    name, _ = headline(phases[0])
    points = tuple((float(phase[key]), headline(phase)[1]) for phase in phases)
    values, places = [value for _, value in points], [place for place, _ in points]
    title = f"{labels_counted(unit)}, planned" if key == "labels" else f"epsilon, any {unit}"
    told = ", ".join(f"{percent(value)} at {place:,.4g}" for place, value in points)
    room = 0.04 * max(max(places) - min(places), 1e-9)
    labels = tuple(f"{100 * value:.1f}" for value in values)
    bought = next(
        (number for number, (earlier, later) in enumerate(pairwise(phases), 1)
         if later["labels"] == earlier["labels"]),
        len(phases),
    )  # fmt: skip
    lines = [Line(name=name, points=points[:bought], style=style_of(0), labels=labels[:bought])]
    if bought < len(phases):
        beside, told_of = points[bought - 1 :], ("", *labels[bought:])
        lines.append(
            Line(name="self-training, no labels", points=beside, style=style_of(1), labels=told_of)
        )
    return Chart(
        name="accuracy" if key == "labels" else "accuracy-by-epsilon",
        title=f"Validation {name}",
        below=f"on {protection_words(phases[-1])}",
        lines=tuple(lines),
        x=axis(title, min(places) - room, max(places) + room),
        y=axis(
            f"validation {name}",
            max(0.0, min(values) - 0.1),
            min(1.0, max(values) + 0.08),
            percent=True,
        ),
        alt=f"Validation {name} by {title.partition(',')[0]}: {told}.",
    )
