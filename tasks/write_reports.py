"""Writing the reports of a run."""

from __future__ import annotations

from typing import Any

from dpal.runs.make_report import write_reports
from dpal.runs.run import Run
from tasks.boundary import task


@task()
def write_report(run: Run[Any]) -> None:
    """Writes report.md, report.html and ledger.html."""
    write_reports(run.folder)
