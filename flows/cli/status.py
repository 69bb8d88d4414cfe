"""`dpal status`: how far runs are, and what they wait for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpal.errors import CertificateError, DataError, DpalError
from dpal.reports.report import Table
from dpal.reports.validation_figures import (
    against_best_before,
    against_majority,
    headline,
    percent,
)
from dpal.runs.kinds import recorded_kind
from dpal.runs.released_phase import reached, released_phase, stopped_early
from flows.cli.folder_arguments import campaign_folder
from flows.cli.terminal import out, print_table

if TYPE_CHECKING:
    from dpal.files.artifacts import CampaignFolder

EXAMPLE = "Example: dpal status artifacts/digits --watch"
_FINISHED = "finished"
_ENDED = "was ended before its plan was done"
_SECONDS = 2.0  # between two looks
_Rows = tuple[tuple[str, ...], ...]


def status(
    campaign: Annotated[
        Path | None, typer.Argument(help="Campaign folder; all if left out.")
    ] = None,
    artifacts: Annotated[Path, typer.Option(help="Folder of all campaigns.")] = Path("artifacts"),
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep looking, until Ctrl-C or none is under way.")
    ] = False,
) -> None:
    """Show how far campaigns are and what they wait for."""
    shown: _Rows | None = None
    while True:
        folders = _folders(campaign, artifacts)
        rows = tuple(_progress(folder) for folder in folders)
        if rows != shown:  # what is not a terminal gets a table for every change, and no more
            if watch:
                out.clear()
            _show(folders, rows, artifacts)
            shown = rows
        if not watch or all(state.startswith((_FINISHED, _ENDED)) for *_, state in rows):
            return
        time.sleep(_SECONDS)


def _folders(campaign: Path | None, artifacts: Path) -> list[CampaignFolder]:
    from dpal.files.artifacts import RECORD

    if campaign:
        return [campaign_folder(campaign)]
    return [campaign_folder(path.parent) for path in sorted(artifacts.glob(f"*/{RECORD}"))]


def _show(folders: Sequence[CampaignFolder], rows: _Rows, artifacts: Path) -> None:
    if not folders:
        out.print(f"no campaigns under {artifacts}; start one: dpal run FILE")
        return
    columns = ("campaign", "phases", "labels, planned", "validation", "epsilon", "state")
    print_table(Table("Campaigns", columns, rows))
    for folder, (*_, state) in zip(folders, rows, strict=True):
        if state == _ENDED:
            continue  # labels would be of no use
        query = folder.phase(len(folder.finished_phases())).query / "query.csv"
        if query.is_file():
            out.print(f"fill in {query}, then: dpal label {folder.root} {query}")
        elif query.parent.joinpath("projects.json").is_file():
            out.print(f"people label in Label Studio; how far they are: dpal label {folder.root}")


def _progress(folder: CampaignFolder) -> tuple[str, ...]:
    summary, phases = folder.read_record()["plan"], folder.finished_phases()
    total = len(summary["phases"])
    if not total:
        try:
            kind = recorded_kind(folder)
        except DataError as unknown:  # of a program that registers kinds of its own
            return folder.name, "-", "-", "-", f"{summary['epsilon']:.4f}", str(unknown)
        done, of = kind.use_cases().progress(folder)
        state = _FINISHED if folder.certificate.is_file() else _said_of_end(folder)
        state = state or "unfinished; run it again"
        return folder.name, f"{done}/{of}", "-", "-", f"{summary['epsilon']:.4f}", state
    try:
        shown, told = (reached(folder), _reached(folder)) if phases else ({}, "-")
    except CertificateError as damaged:  # the others are shown all the same
        return folder.name, f"{len(phases)}/{total}", "-", "-", "-", str(damaged)
    # Before a phase is finished nobody has added up what it released: that is not nothing.
    spent = f"{shown['campaign_epsilon']:.4f}" if phases else "-"
    labels = f"{shown.get('labels', 0):,}"
    current = folder.phase(len(phases))
    if len(phases) == total:
        state = _FINISHED
    elif stopped_early(folder):
        state = f"{_FINISHED} early: the validation curve is flat"
    elif ended := _said_of_end(folder):
        state = ended
    elif current.query.is_dir() and not current.labels.exists():
        state = "waits for labels"
    else:
        state = "unfinished; the same `dpal run` continues it"
    return folder.name, f"{len(phases)}/{total}", labels, told, spent, state


def _said_of_end(folder: CampaignFolder) -> str:
    """What the ledger says of the end of a run whose plan is not done; empty where it goes on."""
    from dpal.runs.ended_run import was_ended  # the ledger takes a second to import

    try:
        return _ENDED if was_ended(folder) else ""
    except DpalError as trouble:  # the others are shown all the same
        return str(trouble)


def _reached(folder: CampaignFolder) -> str:
    """The headline figure of a campaign's model, and what is worse than an earlier phase."""
    phases, released = folder.finished_phases(), released_phase(folder)
    name, value = headline(phases[released])
    last = against_best_before(phases, len(phases) - 1)
    told = [f"{percent(value)} {name}"]
    if released != len(phases) - 1:
        told[0] += f" (phase {released})"
    if last is not None and last.is_worse:
        told.append(f"phase {len(phases) - 1}: {last.words()}")
    compared = against_majority(phases[released])
    if compared is not None and not compared.is_better:
        told.append(compared.words())
    return "; ".join(told)
