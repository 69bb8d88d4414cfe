"""Looking at campaigns that wait for people, and resuming those whose labels are complete."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from prefect.cache_policies import NO_CACHE

from dpal.errors import DpalError
from dpal.files.artifacts import CampaignFolder, PhaseFolder
from dpal.runs.labelers import labeler_of
from dpal.runs.labeling_job import LabelingJob
from dpal.runs.progress_logging import notify
from tasks.boundary import task
from tasks.wait_for_people import (
    ResumeOutcome,
    Waiting,
    clear_waiting,
    resume_flow_run,
    waiting_phases,
)


class Collected(StrEnum):
    """What a look at one campaign came to."""

    WAITS = "waits for labels"
    RESUMED = "resumed"
    TROUBLE = "could not be looked at"
    NOTHING = "nothing to do"


@task(cache_policy=NO_CACHE)
def collect_campaign(folder: Path) -> Collected:
    """Looks at one campaign that waits, and resumes its flow run if its labels are complete.

    Doing it twice, or from two places at once, does no harm: labels are written once, and a
    flow run that is on its way is left alone.
    """
    campaign, outcome = CampaignFolder(folder), Collected.NOTHING
    for files, waiting in waiting_phases(campaign):
        try:
            outcome = _collect(campaign, files, waiting)
        except DpalError as trouble:  # one campaign must not keep the others waiting
            notify(f"{campaign.name}: {trouble}")
            outcome = Collected.TROUBLE
    return outcome


def _collect(campaign: CampaignFolder, files: PhaseFolder, waiting: Waiting) -> Collected:
    if not files.labels.exists():
        projects = labeler_of(waiting.kind).projects
        if projects is None:
            return Collected.WAITS
        job = LabelingJob.recorded(campaign)
        # Settings of a later run may name another one, whose address nobody has allowed.
        if job.config.labeler.kind != waiting.kind:
            return Collected.WAITS
        look = projects.look(job, files)
        if not look.complete:
            return Collected.TROUBLE if look.trouble else Collected.WAITS
    return let_go_on(campaign, files, waiting)


def let_go_on(campaign: CampaignFolder, files: PhaseFolder, waiting: Waiting) -> Collected:
    """Resumes the flow run that waited for labels which are there."""
    outcome = resume_flow_run(campaign, waiting)
    if outcome is ResumeOutcome.RESUMED:
        notify(
            f"{campaign.name}: labels of {files.root.name} are complete, its flow run is resumed"
        )
        return Collected.RESUMED
    if outcome in (ResumeOutcome.ENDED, ResumeOutcome.LOCAL):
        notify(f"{campaign.name}: labels of {files.root.name} are complete, and no suspended flow "
            f"run waits for them; continue with: dpal label {campaign.root}")  # fmt: skip
        clear_waiting(files)
    return Collected.NOTHING
