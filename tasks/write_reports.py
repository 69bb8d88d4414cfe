"""Writing the reports of a run."""

from __future__ import annotations

from typing import Any

from dpal.runs.calibrate_model import calibrate_released
from dpal.runs.make_report import write_reports
from dpal.runs.run import Run
from tasks.boundary import task


@task()
def write_report(run: Run[Any]) -> None:
    """Writes report.md, report.html, ledger.html and the model's card, with its calibration."""
    calibrate_released(run)
    write_reports(run.folder)
