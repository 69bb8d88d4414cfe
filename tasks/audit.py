"""Auditing a run, and showing what was found."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from prefect.artifacts import create_image_artifact, create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from dpal.audit.audit_campaign_plan import Effort
from dpal.audit.findings import AuditReport
from dpal.canonical import plain
from dpal.files.atomic_writes import atomic_write, write_text
from dpal.reports.audit_summary import audit_text, audit_verdict
from dpal.reports.plots.audit import audit_figure
from dpal.reports.plots.style import as_png
from dpal.runs.kinds import KINDS
from dpal.runs.run import Run
from tasks.boundary import task
from tasks.tracking.whole_runs import track_audit

TEXT, JSON, FIGURE = "audit.md", "audit.json", "claimed-versus-measured.png"


@task(retries=0, cache_policy=NO_CACHE)
def run_audit(run: Run[Any], effort: Effort) -> AuditReport:
    """Attacks a run's mechanisms with its own code, on public or made-up records. No charge."""
    return KINDS[run.kind].use_cases().audit(run, effort)


@task(cache_policy=NO_CACHE)
def write_audit(run: Run[Any], report: AuditReport) -> Path:
    """Writes audit.md, audit.json and the figure, and shows them in Prefect and MLflow."""
    folder, picture = run.folder.root / "audit", as_png(audit_figure(report))
    with atomic_write(folder / FIGURE) as temporary:
        temporary.write_bytes(picture)
    text = audit_text(report, FIGURE)
    write_text(folder / TEXT, text)
    write_text(folder / JSON, json.dumps(plain(report.record()), indent=2) + "\n")
    create_markdown_artifact(
        text.replace(f"({FIGURE})", "(see the artifact audit-figure)"),
        key="audit",
        description=audit_verdict(report),
    )
    create_image_artifact(
        image_url="data:image/png;base64," + base64.b64encode(picture).decode(),
        key="audit-figure",
        description="What the plan claims, and what was measured.",
    )
    bounds = {
        f"audit/epsilon_bound_{number}": finding.value
        for number, finding in enumerate(
            finding for finding in report.findings if finding.is_epsilon
        )
        if finding.value is not None
    }
    failed = {"audit/checks": float(len(report.findings)), "audit/failed": len(report.failed)}
    track_audit(run, report.passed, {**failed, **bounds}, folder)
    return folder
