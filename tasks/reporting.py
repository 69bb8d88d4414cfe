"""Writing the reports of a run."""

from __future__ import annotations

from typing import Protocol

from prefect.cache_policies import NO_CACHE

from dpal.files.artifacts import CampaignFolder
from dpal.runs import report
from tasks.boundary import task
from tasks.versioning import restore_commands


class Run(Protocol):
    """A run of any kind."""

    @property
    def folder(self) -> CampaignFolder:
        """Its files."""


@task(cache_policy=NO_CACHE)
def write_report(run: Run) -> None:
    """Writes report.md, report.html and ledger.html."""
    report.write_reports(run.folder, restores(run.folder))


def restores(folder: CampaignFolder) -> list[str]:
    """Commands that bring back the files of a run's finished phases."""
    return restore_commands(folder, len(folder.finished_phases()))
