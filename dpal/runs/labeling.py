"""Queries out, labels in."""

from __future__ import annotations

from pathlib import Path

from dpal.data.labeling_state import (
    read_labels,
    read_retired,
    read_selection,
    write_labels,
    write_merged,
)
from dpal.errors import LabelError, LabelsPending
from dpal.files.artifacts import CampaignFolder, PhaseFolder
from dpal.labeling import Labeler
from dpal.labeling.checked_labels import ProgramLabeler
from dpal.labeling.earlier_labels import EarlierLabels
from dpal.labeling.file import accept_labels
from dpal.labeling.labeling_figures import labeling_figures, write_labeling_figures
from dpal.labels import Task
from dpal.ledger.folder_lock import lock_folder
from dpal.planning.campaign_plan import Phase
from dpal.runs.campaign import Campaign
from dpal.runs.early_stopping import has_stopped
from dpal.runs.ended_run import was_ended
from dpal.runs.host import host
from dpal.runs.labelers import labeler_of
from dpal.runs.labeling_job import LabelingJob
from dpal.runs.progress_logging import notify
from dpal.runs.pseudo_labels import label_remaining
from dpal.runs.read_recorded_settings import settings_that_label


def reach_teachers(campaign: Campaign) -> None:
    """Finds out that teachers are missing, unfit or asked too much before anything is held."""
    if campaign.is_held() and has_stopped(campaign):
        return  # no further labels are bought
    job = LabelingJob.of(campaign)
    carries = campaign.start.earlier is not None and campaign.plan.spec.carries_labels
    planned = {
        phase.index: phase.most_labels
        for phase in campaign.plan.labeling_phases
        if not campaign.files(phase).labels.exists() and not (carries and phase.index == 0)
    }
    job.labeler.require_answers(job, planned)


def ask_labeler(
    campaign: Campaign, phase: Phase, labeler: Labeler | None = None
) -> LabelsPending | None:
    """Gets the labels of a phase's selection, or says that people still have to give them."""
    if phase.is_self_training:
        return None  # nobody was selected, and nobody is asked
    earlier = campaign.start.earlier
    carries = phase.index == 0 and earlier is not None and campaign.plan.spec.carries_labels
    carried = earlier.state if carries and earlier is not None else None
    job = LabelingJob.of(campaign)
    return get_labels(job, campaign.files(phase), carried=carried, labeler=labeler)


def get_labels(
    asked: LabelingJob,
    files: PhaseFolder,
    *,
    carried: Path | None = None,
    labeler: Labeler | None = None,
) -> LabelsPending | None:
    """Gets the labels of a selection, or says that people still have to give them.

    Args:
      asked: who labels what.
      files: of the phase whose selection is made.
      carried: state of an earlier campaign that has the labels already.
      labeler: answers in place of a person's file; None for whom the settings name.

    Raises:
      LabelError: what labels is not fit, or there is no label where one is needed.
    """
    name = files.root.name
    if not files.labels.exists():
        try:
            _answers(asked, files, carried, labeler)
        except LabelsPending as pending:
            notify(f"{name}: waiting for labels")
            return pending
    host().stop_waiting(files)
    notify(f"{name}: labels received")  # how many is confidential where selection is hidden
    return None


def merge_labels(campaign: Campaign, phase: Phase) -> None:
    """Lets the newly labeled records enter the pool as a cohort.

    Records that annotators skipped, or that teachers left unanswered, leave the pool as those
    do that were one too many. Their charge stays. The guarantee holds for them and for all
    others: whether a record is skipped is said by who looks at that record alone, so that its
    absence is one more answer about it, and a record that never trains contributes the zero
    that zero-out adjacency and clipping allow for anyway. Rates and noise are those of the
    plan, whoever is absent. Where the campaign trains itself, its model labels those who are left.
    """
    if phase.is_self_training:
        label_remaining(campaign, phase)
        return
    files = campaign.files(phase)
    if files.pool.exists():
        return
    before = campaign.folder.start
    if phase.index > 0:
        before = campaign.folder.phase(phase.index - 1).pool
    labels, selected = read_labels(files.labels), read_selection(files.selection)
    skipped = [name for name in selected if name not in labels]
    if skipped and not labeler_of(campaign.config.labeler).may_skip:
        raise LabelError(f"{files.labels} lacks a selected record; restore it, nothing was merged")
    write_merged(
        before,
        labels,
        phase.index,
        files.pool,
        retired=[*read_retired(files.selection), *skipped],
        selection=files.selection,
    )


def deliver_labels(folder: CampaignFolder, answers: Path) -> int:
    """Accepts a person's answers to the open query of a campaign.

    Returns:
      How many labels were accepted.

    Raises:
      LabelError: no query is open, or the answers do not fit it. Nothing was merged.
    """
    settings_that_label(folder)  # accounts and ensembles of teachers have no query
    record = folder.read_record()
    labeler = labeler_of(record["config"]["labeler"]["kind"])
    if not labeler.takes_answers:
        raise LabelError(
            f"campaign {folder.name} takes its labels from {labeler.place}, not from a file; "
            "nothing was merged"
        )
    with lock_folder(folder.root):
        require_not_ended(folder)
        files = open_query(folder)
        if files is not None:
            accepted = accept_labels(
                answers,
                read_selection(files.selection),
                classes=record["classes"],
                class_names=record["class_names"],
                task=Task(record["task"]) if "task" in record else Task.SINGLE_LABEL,
            )
            figures = labeling_figures(accepted.opinions, records=len(accepted.labels))
            write_labeling_figures(figures, files.labeling)
            write_labels(accepted.labels, files.labels)
            return len(accepted.labels)
    raise LabelError(f"campaign {folder.name} has no open query; nothing was merged")


def require_not_ended(folder: CampaignFolder) -> None:
    """Requires that labels are of use to a campaign.

    Raises:
      LabelError: somebody ended it, and it trains no more.
    """
    if was_ended(folder):
        raise LabelError(
            f"campaign {folder.name} was ended before its plan was done and takes no labels; start "
            "a new campaign, nothing was merged"
        )


def open_query(folder: CampaignFolder) -> PhaseFolder | None:
    """The phase whose selection is made and whose labels are wanted; none once it was ended."""
    if was_ended(folder):
        return None
    for phase in folder.read_record()["plan"]["phases"]:
        files = folder.phase(phase["phase"])
        if files.selection.exists() and not files.labels.exists():
            return files
    return None


def _answers(
    asked: LabelingJob, files: PhaseFolder, carried: Path | None, given: Labeler | None
) -> None:
    """Writes the labels of a selection, or raises that they are pending."""
    if carried is not None:
        write_labels(EarlierLabels(carried).label(read_selection(files.selection)), files.labels)
        return
    labeler = asked.labeler
    if given is None:
        labeler.answer(asked, files)
        return
    if not labeler.takes_answers:
        raise LabelError(
            f"labeler.kind is {labeler.name} and a labeler was passed in; use labeler.kind: file "
            "for one of your own"
        )
    checked = ProgramLabeler(given, asked.classes, asked.pool.task)
    write_labels(checked.label(read_selection(files.selection)), files.labels)
