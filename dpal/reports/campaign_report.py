"""What a campaign alone has to tell: cohorts, phases, selections, an audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpal.certificate.sentences import STATEMENTS, WHO_WAS_DRAWN, statements_about
from dpal.privacy import Unit
from dpal.reports.annotator_agreement_tables import labeling_is_kept
from dpal.reports.audit_summary import defects
from dpal.reports.campaign_charts import budget_chart, learning_chart
from dpal.reports.plain_language import (
    acquisition_chosen,
    draws_secretly,
    selection_quality,
    who_sees,
)
from dpal.reports.plan_and_phase_tables import (
    above_the_promise,
    cohort_table,
    figures_in_words,
    kept_so_far,
    labels_counted,
    others,
    plan_table,
    shares_table,
    spent_table,
    validation_table,
)
from dpal.reports.report import (
    BROKEN,
    CONTROL,
    SPENT,
    Bar,
    Points,
    Report,
    ReportSection,
    Table,
    section,
)
from dpal.reports.run_report import RunFacts, run_report
from dpal.reports.search_table import search_table
from dpal.reports.validation_figures import (
    against_best_before,
    headline,
    most_labels,
    percent,
    protection_words,
)

_DEFECT = "By the ledger the promise is kept; an audit found a defect. Do not rely on it."
_ATTACKED = "The campaign's own code is attacked; this costs nothing."
_NO_AUDIT = (
    "No audit of this campaign was run. An audit attacks its code with records made for the "
    "purpose; it can find defects, and costs nothing."
)
_AUDIT = (
    "An audit attacks the code with records made for the purpose. The epsilon that an attack "
    "proved must not pass what is claimed, which is the red mark of its bar. Little proved proves "
    "no privacy: it says that these attacks found nothing."
)


_CHOSEN = (
    " Where the phase was chosen by this figure, the figure flatters it a little: judge the model "
    "on records of another set."
)
STOPPED_EARLY = (
    "The campaign stopped buying before its plan was done, because the validation curve was flat. "
    "When to stop was decided in view of what was released, so that all that it could have "
    "released counts as spent; what it may give back to a data set is in the ledger."
)


def campaign_report(
    facts: RunFacts,
    phases: Sequence[Mapping[str, Any]],
    *,
    released: int | None = None,
    audit: Mapping[str, Any] | None = None,
    labeled_by: Mapping[str, Any] | None = None,
    choice: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
    asks_people: bool = False,
) -> Report:
    """Tells a campaign.

    Args:
      facts: what every run has; the summary is that of the certified plan.
      phases: metrics of the finished phases, at least one.
      released: number of the phase whose model is the campaign's; None for the last.
      audit: `audit.json` of an audit of this plan, if there was one.
      labeled_by: account and promise of the teachers whose votes gave the labels; None where
        others gave them.
      choice: how public records chose the acquisition; None where the settings named it.
      search: what trials of settings came to; None where there was no search.
      asks_people: whether people gave the labels.
    """
    summary, last = facts.summary, {**phases[-1], "campaign_epsilon": facts.spent}
    chosen = len(phases) - 1 if released is None else released
    early = facts.finished and len(phases) < len(summary["phases"])
    name, value = headline(phases[chosen])
    unit, is_curve = summary["unit"], len(phases) > 1  # one point says no more than the tables
    kept, _ = kept_so_far(facts.spent, summary)
    keeps = figures_in_words(summary["accountant"]) if kept else None
    above = above_the_promise(last["cohorts"], summary, whole=last["campaign_epsilon"])
    planned_above = above_the_promise(summary["cohorts"], summary, whole=summary["worst_epsilon"])
    said = {
        **STATEMENTS,
        **statements_about(
            stopped=False,
            secret_draws=False,
            self_training=False,
            protected_validation="validation" in summary,
            measured_groups="groups" in summary.get("validation", {}),
            held_out="share" in summary.get("validation", {}),
            groups=summary.get("groups") is not None,
            searched="search" in summary,
        ),
    }
    certified = (
        f"Certified before anything was released, whatever path a record takes: "
        f"{summary['worst_epsilon']:.4f} by {summary['accountant'].upper()}; second opinion "
        f"(dp-accounting): {summary['epsilon_oracle']:.4f}."
    )
    cohorts = (
        f"A cohort is {unit}s with one privacy history: those that began to train in the same "
        "phase. What a selection costs is charged to everybody it could have looked at."
    )
    return run_report(
        facts,
        promised_by=(certified, *([] if labeled_by is None else [_votes(labeled_by)])),
        spent=(
            cohorts,
            *([budget_chart(summary, phases)] if is_curve else []),
            spent_table(last, summary),
            *([] if above is None else [above]),
            *([keeps] if keeps else []),
        ),
        sections=(
            section(
                "What it bought",
                learning_chart(phases, "labels", unit) if is_curve else None,
                learning_chart(phases, "campaign_epsilon", unit) if is_curve else None,
                validation_table(phases, chosen, unit),
                STOPPED_EARLY if early else None,
                note=f"Validation {name}, measured on {protection_words(phases[chosen])}. "
                f"The model is that of phase {chosen}." + (_CHOSEN if len(phases) > 1 else ""),
            ),
            section(
                "Who sees the selection",
                None if choice is None else acquisition_chosen(choice),
                who_sees(summary),
                selection_quality(summary),
                labeling_is_kept(summary["name"]) if asks_people else None,
            ),
            _audited(audit),
            section(
                "How it was planned",
                plan_table(summary),
                None if search is None else search_table(search),
                cohort_table(summary),
                planned_above,
                keeps,
                shares_table(summary) if summary["blocks"] else None,
                note="All of this was fixed, and checked against the promise, before any record "
                "was read.",
            ),
        ),
        uncovered=(
            *said["exceptions"],
            *([WHO_WAS_DRAWN] if draws_secretly(summary) else []),
            said["tuning"],
            others(summary),
        ),
        cards=(
            (
                f"{most_labels(last):,}",
                "labels bought" if unit == Unit.RECORD else labels_counted(unit),
                f"up to, of {summary['pool_size']:,} {unit}s",
            ),
            (percent(value), name, "on the validation set"),
        ),
        points=(*_losses(phases, chosen), *([] if audit is None else [_audit_point(audit)])),
        defect="" if audit is None or audit["passed"] else _DEFECT,
        checks=((f"dpal audit {summary['name']}", _ATTACKED),),
    )


def _losses(phases: Sequence[Mapping[str, Any]], released: int) -> Iterator[tuple[bool, str]]:
    """Phases that are worse than an earlier one by more than noise; false if one is released."""
    for number in range(len(phases)):
        compared = against_best_before(phases, number)
        if compared is not None and compared.is_loss:
            kept = "is" if number == released else "is not"
            said = f"The model {kept} that of phase {number}: {compared.words()}."
            yield number != released, said


def _votes(labeled_by: Mapping[str, Any]) -> str:
    kept = labeled_by["promise"]
    return (
        f"Labels are private votes of the teachers of {labeled_by['account']}, charged in the "
        f"same ledger under their own account: epsilon {kept['epsilon']:g} at delta "
        f"{kept['delta']:.3g} ({kept['adjacency']}, {kept['unit']}) for the records behind "
        f"them, certificate `{labeled_by['certificate']}`. Each promise is about its own records."
    )


def _audit_point(audit: Mapping[str, Any]) -> tuple[bool, str]:
    count, failed = (
        len(audit["findings"]),
        sum(not finding["passed"] for finding in audit["findings"]),
    )
    if not audit["passed"]:
        return False, f"It was audited: {failed} of {count} checks failed."
    return True, f"It was attacked with its own code: all {count} checks passed."


def _audited(audit: Mapping[str, Any] | None) -> ReportSection:
    """Claimed and proven epsilons, and the defects."""
    if audit is None:
        return section("Claimed and audited", _NO_AUDIT)
    findings = audit["findings"]
    bounds = [
        finding for finding in findings if finding["is_epsilon"] and finding["value"] is not None
    ]
    highest = max([1.0, *(max(bound["value"], bound["claimed"] or 0.0) for bound in bounds)]) * 1.1
    sentences, rows = defects(findings), []
    for bound in bounds:
        claimed = "not private" if bound["claimed"] is None else f"{bound['claimed']:.2f}"
        rows.append((bound["what"], f"{bound['value']:.2f}", claimed))
    table = Table(
        "Proved and claimed",
        ("attack", "proved", "claimed"),
        tuple(rows),
        bars=tuple(_proved(bound, highest) for bound in bounds),
        bars_title="proved (red: claimed)",
    )
    return section(
        "Claimed and audited",
        table if bounds else None,
        "Defects:" if sentences else f"All {len(findings)} checks passed.",
        Points(tuple(sentences)) if sentences else None,
        note=_AUDIT,
    )


def _proved(finding: Mapping[str, Any], highest: float) -> Bar:
    claimed = finding["claimed"]
    style = BROKEN if not finding["passed"] else CONTROL if claimed is None else SPENT
    mark = None if claimed is None else 100 * min(1.0, claimed / highest)
    return Bar(((100 * max(0.0, finding["value"]) / highest, style, False),), mark)
