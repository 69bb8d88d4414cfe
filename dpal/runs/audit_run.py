"""Audits: what a run does to records is attacked with its own code, and nothing is charged."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dpal.audit.findings import AuditFinding, AuditReport
from dpal.audit.one_draw_per_reservation import drill_findings, ledger_findings
from dpal.errors import ParameterError
from dpal.files.artifacts import RECORD
from dpal.randomness import secure
from dpal.runs.progress_logging import notify
from dpal.runs.run import Run


def audit_report(
    run: Run[Any], attacks: Iterable[AuditFinding], canaries: Mapping[str, int]
) -> AuditReport:
    """Attacks on a run's mechanisms, a drill of the ledger, and what its own ledger shows.

    Args:
      run: planned, started or not.
      attacks: on its mechanisms.
      canaries: how many were used, by kind.
    """
    findings = list(attacks)
    if any(release.trains for release in run.plan.releases()):
        notify("audit: a drill of the ledger")
        with tempfile.TemporaryDirectory() as scratch:
            findings += drill_findings(run.plan, Path(scratch), rng=secure())
    return AuditReport(
        name=run.name,
        plan_digest=run.plan.digest,
        target=run.plan.target,
        findings=(*findings, *found_in_ledger(run)),
        canaries=canaries,
    )


def require_held_plan(run: Run[Any]) -> None:
    """Requires that what is attacked is what was run, if the folder holds a run.

    Else the ledger would differ from the plan, and a sound run would be called a defect.

    Raises:
      ParameterError: the ledger holds another plan under this name.
    """
    if not (run.folder.root / RECORD).is_file():
        return
    with run.ledger() as ledger:
        held = ledger.held_plan
    if held not in (None, run.plan.digest):
        raise ParameterError(
            f"{run.folder.root} holds a run of another plan, by other settings or another version, "
            "and an audit compares both; give it the settings of that run, or these a name of "
            "their own"
        )


def found_in_ledger(run: Run[Any]) -> list[AuditFinding]:
    """What a run's own ledger and files show; nothing where it was not started."""
    if not (run.folder.root / RECORD).is_file():
        return []
    with run.ledger() as ledger:
        return ledger_findings(run.plan, ledger) if ledger.identity else []
