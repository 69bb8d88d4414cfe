"""Queries out, labels in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpal.config.campaign import LabelerKind
from dpal.data.pool import read_labels, read_retired, read_selection, write_labels, write_merged
from dpal.errors import (
    CampaignBusy,
    FormOpen,
    LabelError,
    LabelingProjectOpen,
    LabelsPending,
    LabelStudioError,
)
from dpal.files.artifacts import CampaignFolder, PhaseFolder
from dpal.labelers import Labeler
from dpal.labelers.earlier import EarlierLabels
from dpal.labelers.file import QUERY, FileLabeler, accept_labels
from dpal.labelers.form import read_form
from dpal.labelers.label_studio import Progress
from dpal.labelers.oracle import OracleLabeler
from dpal.labelers.program import ProgramLabeler
from dpal.labels import Task
from dpal.ledger.campaign_lock import claim
from dpal.planning.plan import Phase
from dpal.runs.campaign_run import Campaign
from dpal.runs.host import host
from dpal.runs.label_studio import opened_label_studio
from dpal.runs.labeling_job import LabelingJob, recorded
from dpal.runs.labeling_job import recorded_config as recorded_config
from dpal.runs.notify import notify
from dpal.runs.teacher_labels import labels_by_teachers, require_answers

_MAY_SKIP = (LabelerKind.LABEL_STUDIO, LabelerKind.TEACHERS)
_LOOK_SECONDS = 60.0  # whoever looks at a labeling project has it to itself


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a look at a labeling project found.

    Attributes:
      place: where people label.
      complete: whether all labels are there, and kept.
      progress: how far people are; confidential. None if that could not be seen.
      trouble: what is wrong with the server; None if nothing is.
    """

    place: str
    complete: bool
    progress: Progress | None = None
    trouble: str | None = None


def reach_teachers(campaign: Campaign) -> None:
    """Finds out that teachers are missing, unfit or asked too much before anything is held."""
    if campaign.config.labeler.kind is not LabelerKind.TEACHERS:
        return
    carries = campaign.start.earlier is not None and campaign.plan.spec.carries_labels
    planned = {
        phase["phase"]: int(phase["cohort_size"])
        for phase in campaign.certified.summary()["phases"]
        if not campaign.folder.phase(phase["phase"]).labels.exists()
        and not (carries and phase["phase"] == 0)
    }
    if planned:
        require_answers(LabelingJob.of(campaign), planned)


def ask_labeler(
    campaign: Campaign, phase: Phase, labeler: Labeler | None = None
) -> LabelsPending | None:
    """Gets the labels of a phase's selection, or says that people still have to give them."""
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
    plan, whoever is absent.
    """
    files = campaign.files(phase)
    if files.pool.exists():
        return
    before = campaign.folder.start
    if phase.index > 0:
        before = campaign.folder.phase(phase.index - 1).pool
    labels, selected = read_labels(files.labels), read_selection(files.selection)
    skipped = [name for name in selected if name not in labels]
    if skipped and campaign.config.labeler.kind not in _MAY_SKIP:
        raise LabelError(f"{files.labels} lacks a selected record; restore it, nothing was merged")
    write_merged(
        before,
        labels,
        phase.index,
        files.pool,
        retired=[*read_retired(files.selection), *skipped],
    )


def look_into_project(asked: LabelingJob, files: PhaseFolder, *, partly: bool = False) -> Look:
    """Looks at a query's labeling project, and keeps its labels once they are complete.

    Whatever is wrong with the server is told and does not end the waiting: the next look,
    within a minute, tries again.
    """
    settings, phase = asked.config.labeler.label_studio, files.root.name
    place, progress = settings.url, None
    try:
        with claim(files.query, patience=_LOOK_SECONDS):
            if files.labels.exists():
                return Look(place=place, complete=True)
            with opened_label_studio(asked, files) as labeler:
                progress = labeler.look(read_selection(files.selection), partly=partly)
                place = labeler.place
            if progress.complete:
                write_labels(progress.labels, files.labels)
    except CampaignBusy:  # somebody else looks, and for long
        return Look(place=place, complete=files.labels.exists())
    except LabelStudioError as trouble:
        notify(f"{phase}: {trouble}")
        return Look(place=place, complete=False, trouble=str(trouble))
    for sentence in progress.news:
        notify(f"{phase}: {sentence}")
    if progress.invalid and not progress.complete:
        notify(f"{phase}: a task in Label Studio has an answer that is not offered; "
            f"`dpal label {asked.folder.root}` says which, correct it there")  # fmt: skip
    return Look(place=place, complete=progress.complete, progress=progress)


def deliver_labels(folder: CampaignFolder, answers: Path) -> int:
    """Accepts a person's answers to the open query of a campaign.

    Returns:
      How many labels were accepted.

    Raises:
      LabelError: no query is open, or the answers do not fit it. Nothing was merged.
    """
    recorded(folder)  # accounts and ensembles of teachers have no query
    record = folder.read_record()
    kind = record["config"]["labeler"]["kind"]
    if kind != LabelerKind.FILE:
        place = {
            LabelerKind.ORACLE: "the pool (labeler.kind oracle)",
            LabelerKind.LABEL_STUDIO: "Label Studio",
            LabelerKind.FORM: "the form on its Prefect page",
            LabelerKind.TEACHERS: "private votes of teachers (labeler.kind teachers)",
        }[LabelerKind(kind)]
        raise LabelError(
            f"campaign {folder.name} takes its labels from {place}, not from a file; nothing was "
            "merged"
        )
    with claim(folder.root):
        files = open_query(folder)
        if files is not None:
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


def open_query(folder: CampaignFolder) -> PhaseFolder | None:
    """The phase whose selection is made and whose labels are wanted."""
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
    command = f"dpal label {asked.folder.root}"
    if asked.kind is LabelerKind.LABEL_STUDIO:
        look = look_into_project(asked, files)
        if not look.complete:
            raise LabelingProjectOpen(look.place, command)
        return
    if asked.kind is LabelerKind.FORM:
        _read_form(asked, files)
        return
    if asked.kind is LabelerKind.TEACHERS:
        write_labels(labels_by_teachers(asked, files), files.labels)
        return
    labeler: Labeler
    if given is not None and asked.kind is not LabelerKind.FILE:
        raise LabelError(
            f"labeler.kind is {asked.kind} and a labeler was passed in; use labeler.kind: file for "
            "one of your own"
        )
    if given is not None:
        labeler = ProgramLabeler(given, asked.classes, asked.pool.task)
    elif asked.kind is LabelerKind.ORACLE:
        labeler = OracleLabeler(asked.pool, asked.classes)
    else:
        labeler = FileLabeler(
            source=asked.pool,
            folder=files.query,
            delivered=files.labels,
            command=f"{command} {files.query / QUERY}",
        )
    write_labels(labeler.label(read_selection(files.selection)), files.labels)


def _read_form(asked: LabelingJob, files: PhaseFolder) -> None:
    """Writes the labels that were filled in on the Prefect page."""
    values = host().form_values(files)
    if values is None:
        raise FormOpen("the campaign's flow run", "Resume on its Prefect page")
    try:
        labels = read_form(asked.question, values, read_selection(files.selection))
    except LabelError as error:
        notify(f"{files.root.name}: {error}")
        raise FormOpen("the campaign's flow run", "Resume on its Prefect page") from error
    write_labels(labels, files.labels)
