"""What a campaign alone has to tell: cohorts, phases, selections, an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.certificate.statements import STATEMENTS
from dpal.reports.figures.campaign import budget_chart, learning_chart
from dpal.reports.plain_language import selection_quality, who_sees
from dpal.reports.report import (
    BROKEN,
    SPENT,
    Aside,
    Bar,
    Block,
    Points,
    Report,
    Section,
    Segment,
    Table,
    spent_bar,
)
from dpal.reports.run_report import RunFacts, run_report
from dpal.reports.summary import (
    cohort_table,
    cohort_words,
    figures_in_words,
    kept_so_far,
    others,
    plan_table,
    shares_table,
    validation_table,
)
from dpal.reports.validation import headline, percent


def campaign_report(
    facts: RunFacts,
    phases: Sequence[Mapping[str, Any]],
    *,
    audit: Mapping[str, Any] | None = None,
    labeled_by: Mapping[str, Any] | None = None,
) -> Report:
    """Tells a campaign.

    Args:
      facts: what every run has; the summary is that of the certified plan.
      phases: metrics of the finished phases, at least one.
      audit: `audit.json` of an audit of this plan, if there was one.
      labeled_by: account and promise of the teachers whose votes gave the labels; None where
        others gave them.
    """
    summary, last = facts.summary, phases[-1]
    name, value = headline(last)
    kept, _ = kept_so_far(facts.spent, summary)
    keeps = [figures_in_words(summary["accountant"])] if kept else []
    certified = (
        f"Certified before anything was released, whatever path a record takes: "
        f"{summary['worst_epsilon']:.4f} by {summary['accountant'].upper()}; second opinion "
        f"(dp-accounting): {summary['epsilon_oracle']:.3f}."
    )
    shares = [shares_table(summary)] if summary["blocks"] else []
    return run_report(
        facts,
        promised_by=(certified, *([_votes(labeled_by)] if labeled_by is not None else [])),
        spent=(
            Aside(
                "A cohort is records with one privacy history: those labeled in the same phase. "
                "What a selection costs is charged to everybody it could have looked at."
            ),
            budget_chart(summary, phases),
            _cohorts(summary, last),
            *keeps,
        ),
        sections=(
            Section(
                "What it bought",
                (
                    Aside(
                        f"Validation {name}, measured on the validation set. That set is not "
                        "protected."
                    ),
                    learning_chart(phases, "labels"),
                    learning_chart(phases, "campaign_epsilon"),
                    validation_table(phases),
                ),
            ),
            Section("Who sees the selection", (who_sees(summary), selection_quality(summary))),
            Section("Claimed and audited", _audited(audit)),
            Section(
                "How it was planned",
                (
                    Aside(
                        "All of this was fixed, and checked against the promise, before any record "
                        "was read."
                    ),
                    plan_table(summary),
                    cohort_table(summary),
                    *keeps,
                    *shares,
                ),
            ),
        ),
        uncovered=(*STATEMENTS["exceptions"], STATEMENTS["tuning"], others(summary)),
        cards=(
            (
                f"{last['labels']:,}",
                "labels bought",
                f"up to, of {summary['pool_size']:,} records",
            ),
            (percent(value), name, "on the validation set"),
        ),
        points=() if audit is None else (_audit_point(audit),),
        defect="" if audit is None or audit["passed"] else _DEFECT,
        checks=(
            (
                f"dpal audit {summary['name']}",
                "The campaign's own code is attacked; this costs nothing.",
            ),
        ),
    )


_DEFECT = "By the ledger the promise is kept; an audit found a defect. Do not rely on it."


def _votes(labeled_by: Mapping[str, Any]) -> str:
    kept = labeled_by["promise"]
    return (
        f"Labels are private votes of the teachers of {labeled_by['account']}, charged in the "
        f"same ledger under their own account: epsilon {kept['epsilon']:g} at delta "
        f"{kept['delta']:.3g} ({kept['adjacency']}, {kept['unit']}) for the records behind "
        f"them, certificate `{labeled_by['certificate']}`. Each promise is about its own records."
    )


def _cohorts(summary: Mapping[str, Any], phase: Mapping[str, Any]) -> Table:
    """What each cohort has spent by the ledger, and any record on whatever path."""
    target, accountant = summary["target_epsilon"], summary["accountant"]
    rows, bars = [], []
    for cohort in phase["cohorts"]:
        numbers = (cohort[key] for key in ("selection_epsilon", "epsilon_rdp", "epsilon_pld"))
        rows.append((cohort_words(cohort["cohort"]), *(f"{one:.4f}" for one in numbers)))
        bars.append(spent_bar(cohort[f"epsilon_{accountant}"], target))
    whole = phase["campaign_epsilon"]
    by = [f"{whole:.4f}" if accountant == key else "-" for key in ("rdp", "pld")]
    rows.append(("any record, any path", "-", *by))
    return Table(
        f"Epsilon by cohort, after phase {phase['phase']}",
        ("cohort", "of it, selections", "epsilon (RDP)", "epsilon (PLD)"),
        tuple(rows),
        bars=(*bars, spent_bar(whole, target)),
        bars_title=f"of the promise (red: {target:g})",
        total=True,
    )


def _audit_point(audit: Mapping[str, Any]) -> tuple[bool, str]:
    count, failed = len(audit["findings"]), sum(not one["passed"] for one in audit["findings"])
    if not audit["passed"]:
        return False, f"It was audited: {failed} of {count} checks failed."
    return True, f"It was attacked with its own code: all {count} checks passed."


def _audited(audit: Mapping[str, Any] | None) -> tuple[Block, ...]:
    """Claimed and proven epsilons, and the defects."""
    if audit is None:
        return (
            "No audit of this campaign was run. An audit attacks its code with records made for "
            "the purpose; it can find defects, and costs nothing.",
        )
    findings = audit["findings"]
    bounds = [one for one in findings if one["is_epsilon"] and one["value"] is not None]
    highest = max([1.0, *(max(one["value"], one["claimed"] or 0.0) for one in bounds)]) * 1.1
    defects = [
        f"{one['what']}: expected {one['expected']}, measured {one['measured']}. Likely: "
        f"{one['likely']}."
        for one in findings
        if not one["passed"]
    ]
    table = Table(
        "Proved and claimed",
        ("attack", "proved", "claimed"),
        tuple(
            (
                one["what"],
                f"{one['value']:.2f}",
                "not private" if one["claimed"] is None else f"{one['claimed']:.2f}",
            )
            for one in bounds
        ),
        bars=tuple(_proved(one, highest) for one in bounds),
        bars_title="proved (red: claimed)",
    )
    return (
        Aside(
            "An audit attacks the code with records made for the purpose. The epsilon that an "
            "attack proved must not pass what is claimed, which is the red mark of its bar. Little "
            "proved proves no privacy: it says that these attacks found nothing."
        ),
        *([table] if bounds else []),
        *(
            ["Defects:", Points(tuple(defects))]
            if defects
            else [f"All {len(findings)} checks passed."]
        ),
    )


def _proved(finding: Mapping[str, Any], highest: float) -> Bar:
    claimed = finding["claimed"]
    style = BROKEN if not finding["passed"] else "control" if claimed is None else SPENT
    share = 100 * max(0.0, finding["value"]) / highest
    mark = None if claimed is None else 100 * min(1.0, claimed / highest)
    return Bar(segments=(Segment(width=share, style=style),), mark=mark)
