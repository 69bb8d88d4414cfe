"""An audit in words and tables. Everything in it is public."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dpal.audit.attack import CONFIDENCE
from dpal.audit.findings import AuditFinding, AuditReport, Layer
from dpal.reports.render.markdown import blocks_in_markdown
from dpal.reports.report import Block, Points, Table, table

_TITLES = {
    Layer.STEP: "Single steps",
    Layer.MECHANISM: "Noise, batches and samplers",
    Layer.SELECTION: "Selections and logs",
    Layer.ATTACK: "Attacks: epsilon proven by guessing (and guesses right)",
    Layer.LEDGER: "Ledger",
}


def findings_tables(report: AuditReport) -> list[Table]:
    """One table for each layer."""
    tables = (
        table(title, [_row(finding) for finding in report.findings if finding.layer is layer])
        for layer, title in _TITLES.items()
    )
    return [layer_table for layer_table in tables if layer_table.rows]


def audit_verdict(report: AuditReport) -> str:
    """The outcome in a few sentences: what was promised, what was found, what it cost."""
    target, checks = report.target, len(report.findings)
    promise = (
        f"epsilon {target.epsilon:g} at delta {target.delta:.3g}, adjacency {target.adjacency}, "
        f"unit {target.unit}"
    )
    outcome = (
        f"all {checks} checks passed"
        if report.passed
        else f"{len(report.failed)} of {checks} checks failed"
    )
    used = ", ".join(f"{count:,} {kind}" for kind, count in report.canaries.items())
    trained = (
        f"Training on canaries ran {report.trained}, which by the accountant is epsilon "
        f"{report.ran:.4f} at the same delta, adjacency and unit. "
        if report.trained
        else ""
    )
    attacked = any(finding.is_epsilon for finding in report.findings)
    bounds = (
        f"Sound code fails with a chance of at most {report.false_alarm:.1g}. Bounds on epsilon "
        f"hold with {100 * CONFIDENCE:.0f} % confidence; they find defects, and prove no privacy."
        if attacked
        else "Only the ledger was tried: no attack on its mechanisms is known."
    )
    return (
        f"{outcome}; promised is {promise}. {trained}"
        f"Canaries: {used or 'none'}. No content of the pool was read, so nothing is charged. "
        f"{bounds}"
    )


def defects(findings: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is likely wrong, one sentence for each check that failed."""
    return [
        f"{finding['what']}: expected {finding['expected']}, measured {finding['measured']}. "
        f"Likely: {finding['likely']}."
        for finding in findings
        if not finding["passed"]
    ]


def audit_text(report: AuditReport, figure: str) -> str:
    """`audit.md`.

    Args:
      report: of the audit.
      figure: path of the figure, from where the text is.
    """
    sentences = defects(map(vars, report.findings))
    blocks: list[Block] = [audit_verdict(report)]
    blocks += ["Defects:", Points(tuple(sentences))] if sentences else []
    blocks += [*findings_tables(report), f"Plan digest: `{report.plan_digest}`"]
    return blocks_in_markdown(f"Audit of {report.name}", blocks, [figure])


def _row(finding: AuditFinding) -> dict[str, str]:
    return {
        "check": finding.what.replace("|", "given"),
        "expected": finding.expected,
        "measured": finding.measured,
        "verdict": _verdict(finding),
    }


def _verdict(finding: AuditFinding) -> str:
    """A bound that passes its claim with less certainty than a failure needs is neither."""
    if not finding.passed:
        return "FAILED"
    if finding.is_epsilon and finding.within is None and finding.claimed is not None:
        return "ok" if (finding.value or 0.0) <= finding.claimed else "unclear"
    return "ok"
