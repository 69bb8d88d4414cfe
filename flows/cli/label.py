"""`dpal label` and `dpal collect`: what people who label need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpal.errors import ConfigError, LabelError
from flows.cli.folder_arguments import campaign_folder
from flows.cli.terminal import err, out, print_table

if TYPE_CHECKING:
    from dpal.files.artifacts import CampaignFolder, PhaseFolder
    from dpal.labeling.labeling_figures import LabelingFigures
    from dpal.runs.labelers.labeler_base import LabelingProgress

LABEL_EXAMPLE = "Example: dpal label artifacts/digits labels.csv"
COLLECT_EXAMPLE = "Example: dpal collect --listen 8095"


def label(
    campaign: Annotated[Path, typer.Argument(help="Campaign folder, or its name.")],
    answers: Annotated[
        Path | None,
        typer.Argument(metavar="[LABELS.csv]", help="Columns id and label; for labeler.kind file."),
    ] = None,
    only: Annotated[bool, typer.Option("--no-run", help="Only accept, do not continue.")] = False,
    here: Annotated[
        bool,
        typer.Option("--here", help="Continue in this terminal, even if a flow run is suspended."),
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Delete the campaign's labeling projects instead.")
    ] = False,
    agreement: Annotated[
        bool,
        typer.Option(
            "--agreement", help="Show how far people agreed and how long they took instead."
        ),
    ] = False,
) -> None:
    """Deliver labels, or look how far annotators are, and continue the campaign."""
    folder = campaign_folder(campaign)
    if agreement:
        if answers is not None or clean:
            raise LabelError(
                "--agreement shows how people labeled and does nothing else; leave out the file or "
                "--clean, or --agreement; nothing was merged or deleted"
            )
        _show_agreement(folder)
        return
    if clean:
        _clean(folder)
        return
    if _accepted(folder, answers) and not only:
        _go_on(folder, here=here)


def collect(
    artifacts: Annotated[Path, typer.Option(help="Folder of all campaigns.")] = Path("artifacts"),
    listen: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Stay, as dpal desk --listen does."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Look at all campaigns that wait for people, and resume those whose labels are complete."""
    if not artifacts.is_dir():
        raise ConfigError(f"{artifacts} is not a folder of campaigns; name it with --artifacts")
    if listen is not None:
        from flows.ops.watch_labels_and_files import run_desk

        run_desk(artifacts, host, listen)
        return
    from tasks.collect_waiting import collect_campaign
    from tasks.wait_for_people import waiting_campaigns

    folders = waiting_campaigns(artifacts)
    for folder in folders:
        out.print(f"{folder.name}: {collect_campaign.fn(folder.root)}")
    if not folders:
        out.print("no campaign waits for people")


def _accepted(folder: CampaignFolder, answers: Path | None) -> bool:
    """Takes labels from a file or a project; says whether they are all there."""
    from dpal.labeling.labeling_figures import read_labeling_figures
    from dpal.runs.labeling import deliver_labels, open_query, require_not_ended
    from dpal.runs.labeling_job import LabelingJob

    if answers is not None:
        files = open_query(folder)
        out.print(f"{deliver_labels(folder, answers):,} labels accepted")
        if files is not None and (figures := read_labeling_figures(files.labeling)).compared:
            _show_figures({files.root.name: figures})
        return True
    require_not_ended(folder)
    asked, files = LabelingJob.recorded(folder), open_query(folder)
    if files is None:
        _require_wait(folder)
        return True
    projects = asked.labeler.projects
    if projects is None:
        raise LabelError(f"campaign {folder.name} {asked.labeler.what_to_do(folder, files)}")
    look = projects.look(asked, files, partly=True)
    _tell(look, files)
    return look.complete


def _require_wait(folder: CampaignFolder) -> None:
    from tasks.wait_for_people import waiting_phases

    if not waiting_phases(folder):
        raise LabelError(f"campaign {folder.name} has no open query; nothing was merged")


def _tell(look: LabelingProgress, files: PhaseFolder) -> None:
    """How far annotators are: for this terminal, which is inside of the trusted boundary."""
    if look.trouble is not None:
        raise LabelError(look.trouble)
    progress = look.progress
    if progress is None:
        out.print("labels are complete" if look.complete else "somebody else is looking; try again")
        return
    have, lack = (
        len(progress.labels) + len(progress.skipped),
        len(progress.waiting) + len(progress.disputed),
    )
    out.print(f"{files.root.name}: {have:,} of {have + lack:,} records are decided")
    if progress.skipped:
        out.print(f"  {len(progress.skipped):,} were skipped and get no label")
    if progress.disputed:
        out.print(f"  {len(progress.disputed):,} wait in the project 'to decide'")
    if progress.invalid:
        tasks = ", ".join(map(str, sorted(set(progress.invalid))[:5]))
        out.print(
            f"  {len(set(progress.invalid)):,} tasks have an answer that is not offered: {tasks}"
        )
    if (figures := progress.figures).compared or figures.timed:
        _show_figures({files.root.name: figures})
    if not look.complete:
        out.print(f"label in {look.place}")


def _show_agreement(folder: CampaignFolder) -> None:
    """What is kept of all queries that people have answered."""
    from dpal.labeling.labeling_figures import read_labeling_figures
    from dpal.runs.read_recorded_settings import settings_that_label

    settings_that_label(folder)  # accounts and ensembles of teachers have no query
    kept = {
        files.root.name: read_labeling_figures(files.labeling)
        for files in map(folder.phase, range(len(folder.read_record()["plan"]["phases"])))
        if files.labeling.is_file()
    }
    if not kept:
        raise LabelError(
            f"campaign {folder.name} has no figures of people's labels here; they are kept once a "
            "query is answered, by people and on this machine"
        )
    _show_figures(kept)


def _show_figures(queries: Mapping[str, LabelingFigures]) -> None:
    """For this terminal alone, as all that is said here of how many were selected."""
    from dpal.reports.annotator_agreement_tables import agreement_table, label_time_table

    for shown in (agreement_table(queries), label_time_table(queries)):
        if shown.rows:
            print_table(shown)


def _go_on(folder: CampaignFolder, *, here: bool) -> None:
    """Resumes the suspended flow run, or runs the campaign in this process."""
    from dpal.runs.read_recorded_settings import settings_that_label
    from flows.cli.orchestrator import needing_prefect
    from flows.cli.run_in_terminal import run_here
    from tasks.wait_for_people import ResumeOutcome, resume_flow_run, waiting_phases

    told = {
        ResumeOutcome.RESUMED: "its suspended flow run goes on; a worker takes it up",
        ResumeOutcome.ON_ITS_WAY: "its flow run is on its way already; "
        "--here runs it in this terminal",
        ResumeOutcome.BUSY: "its flow run is just being suspended; it is resumed within a minute",
    }
    if not here:
        with needing_prefect():
            for _, waiting in waiting_phases(folder):
                outcome = resume_flow_run(folder, waiting)
                if outcome in told:
                    out.print(told[outcome])
                    return
    run_here(settings_that_label(folder))


def _clean(folder: CampaignFolder) -> None:
    from dpal.runs.labeling import open_query
    from dpal.runs.labeling_job import LabelingJob

    asked = LabelingJob.recorded(folder)
    projects = asked.labeler.projects
    if projects is None:
        raise LabelError(f"campaign {folder.name} has no labeling projects; nothing was deleted")
    if open_query(folder) is not None:
        raise LabelError(
            f"campaign {folder.name} still waits for labels in its project; nothing was deleted, "
            "let it finish or end it (dpal end) first"
        )
    deleted = 0
    for phase in folder.read_record()["plan"]["phases"]:
        files = folder.phase(phase["phase"])
        deleted += projects.delete_project(asked, files)
    err.print(f"{deleted} labeling projects deleted", style="dim")
