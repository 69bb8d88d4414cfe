"""Queries out, labels in."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas import OrchestrationResult
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import Pause
from prefect.states import Paused

from dpal.artifacts import CampaignFolder
from dpal.config import CampaignConfig, LabelerKind, parse_config
from dpal.data.pool import read_labels, read_retired, read_selection, write_labels, write_merged
from dpal.errors import LabelError, LabelsPending
from dpal.labelers import Labeler
from dpal.labelers.earlier import EarlierLabels
from dpal.labelers.file import QUERY, FileLabeler, accept_labels
from dpal.labelers.oracle import OracleLabeler
from dpal.labels import Task
from dpal.ledger.claim import claim
from dpal.planning.plan import Phase
from tasks.context import Campaign, say

_PATIENCE_SECONDS = 365 * 24 * 3600


@task(cache_policy=NO_CACHE)
def ask_labeler(campaign: Campaign, phase: Phase) -> LabelsPending | None:
    """Gets the labels of a phase's selection, or says that people still have to give them."""
    files = campaign.files(phase)
    if files.labels.exists():
        return None
    try:
        answers = _labeler(campaign, phase).label(read_selection(files.selection))
    except LabelsPending as pending:
        say(f"{phase.name}: waiting for labels")
        return pending
    write_labels(answers, files.labels)
    say(f"{phase.name}: labels received")  # how many is confidential where selection is hidden
    return None


@task(cache_policy=NO_CACHE)
def merge_labels(campaign: Campaign, phase: Phase) -> None:
    """Lets the newly labeled records enter the pool as a cohort."""
    files = campaign.files(phase)
    if files.pool.exists():
        return
    before = campaign.folder.start
    if phase.index > 0:
        before = campaign.folder.phase(phase.index - 1).pool
    write_merged(
        before,
        read_labels(files.labels),
        phase.index,
        files.pool,
        retired=read_retired(files.selection),
    )


def wait_for_labels(pending: LabelsPending) -> None:
    """Leaves the flow run in the state Paused, with the message, and ends this process's part.

    Raises:
      Pause: always; whoever called the flow tells the person.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise pending
    paused: State[None] = Paused(timeout_seconds=_PATIENCE_SECONDS, message=str(pending))
    with get_client(sync_client=True) as client:
        answer: OrchestrationResult[None] = client.set_flow_run_state(context.flow_run.id, paused)
    raise Pause(str(pending), state=answer.state)


def deliver_labels(folder: CampaignFolder, answers: Path) -> int:
    """Accepts a person's answers to the open query of a campaign.

    Returns:
      How many labels were accepted.

    Raises:
      LabelError: no query is open, or the answers do not fit it. Nothing was merged.
    """
    record = folder.read_record()
    if record["config"]["labeler"]["kind"] != LabelerKind.FILE:
        raise LabelError(
            f"campaign {folder.name} takes its labels from the pool (labeler.kind oracle), not "
            "from a file; nothing was merged"
        )
    with claim(folder.root):
        for phase in record["plan"]["phases"]:
            files = folder.phase(phase["phase"])
            if files.selection.exists() and not files.labels.exists():
                accepted = accept_labels(
                    answers,
                    read_selection(files.selection),
                    classes=record["classes"],
                    class_names=record["class_names"],
                    task=Task(record["task"]) if "task" in record else Task.SINGLE_LABEL,
                )
                write_labels(accepted, files.labels)
                return len(accepted)
    raise LabelError(f"campaign {folder.name} has no open query; nothing was merged")


def recorded_config(folder: CampaignFolder) -> CampaignConfig:
    """The configuration that a campaign was last run with, wherever it is called from."""
    values = folder.read_record()["config"]
    values["runtime"]["artifacts"] = str(folder.root.resolve().parent)
    return parse_config(values)


def _labeler(campaign: Campaign, phase: Phase) -> Labeler:
    earlier = campaign.start.earlier
    if phase.index == 0 and earlier is not None and campaign.plan.spec.carries_labels:
        return EarlierLabels(earlier.state)
    if campaign.config.labeler.kind is LabelerKind.ORACLE:
        return OracleLabeler(campaign.pool, campaign.plan.spec.model.classes)
    files = campaign.files(phase)
    return FileLabeler(
        source=campaign.pool,
        folder=files.query,
        delivered=files.labels,
        command=f"dpal label {campaign.folder.root} {files.query / QUERY}",
    )
