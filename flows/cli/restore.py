"""`dpal restore`: the files of a phase, exactly as they were, from DVC's cache or remote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dpal.errors import DataError, LedgerError
from dpal.files.artifacts import RECORD, CampaignFolder
from dpal.ledger.entries import Entry
from dpal.runs.kinds import holds_ballots
from flows.cli.terminal import out
from flows.cli.verify import entries_of, named_registry

EXAMPLE = "Example: dpal restore artifacts/clinic --phase 2 --to restored"


def restore(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Campaign folder, or with --run that of all campaigns."),
    ] = None,
    phase: Annotated[int | None, typer.Option(min=0, help="Which phase.")] = None,
    md5: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="DVC's hash of it; the pointer's if left out."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Run of the phase in MLflow, which says all of the above."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Lay the files out there; the campaign's own if left out."
        ),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option(metavar="DIR|URL", help="Where phases were pushed; DVC's own if left out."),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(metavar="DIR|FILE|URL", help="The ledger; the campaign's own if left out."),
    ] = None,
    mlflow: Annotated[str | None, typer.Option(metavar="URI", help="Where the run is.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that are there and differ.")
    ] = False,
) -> None:
    """Bring back a phase's files by their hash, compared with manifest and ledger.

    The pool's state, the selection and the labels come with them where their cache is: they
    are never pushed. Nothing is written unless everything fits.
    """
    from tasks.restore import restore_phase

    campaign, phase_number, wanted = _which(folder, phase, md5, run, mlflow)
    entries, unchecked = _ledger(ledger, campaign)
    done = restore_phase(
        campaign,
        phase_number,
        md5=wanted,
        to=to,
        remote=remote or _recorded_remote(campaign),
        entries=entries,
        unchecked=unchecked,
        force=force,
    )
    for name in done.files:
        out.print(f"restored  {name}", markup=False)
    for name in done.there:
        out.print(f"there     {name}", markup=False)
    if done.missing:
        out.print(
            f"without   the pool's state, the selection and the labels: {done.missing}",
            markup=False,
        )
    out.print(f"ledger    {done.ledger}", markup=False)
    out.print(str(to or campaign.root), markup=False)


def _which(
    folder: Path | None, phase: int | None, md5: str | None, run: str | None, mlflow: str | None
) -> tuple[CampaignFolder, int, str | None]:
    """The campaign, the phase and the hash that are asked for."""
    if run is not None:
        from tasks.tracking.model_registry import phase_of_run

        registry = named_registry(mlflow, folder)
        name, phase_number, wanted = phase_of_run(run, registry)
        above = folder or Path("artifacts")
        place = above if above.name == name else above / name
        return CampaignFolder(place), phase_number, wanted
    places = [] if folder is None else [folder, Path("artifacts") / folder]
    existing = next((place for place in places if (place / RECORD).is_file()), None)
    _require_versioned(existing)
    if folder is None or phase is None:
        raise DataError(
            "say which phase: dpal restore DIR --phase N, or dpal restore --run ID for a run of "
            "MLflow"
        )
    if existing is None and md5 is None:
        raise DataError(
            f"{folder} is not a campaign folder; `dpal status` lists the ones there are, and "
            "--md5 brings back files of one that is gone"
        )
    return CampaignFolder(existing or folder), phase, md5


def _require_versioned(place: Path | None) -> None:
    """Refuses what DVC never kept."""
    if place is None:
        return
    folder = CampaignFolder(place)
    if holds_ballots(folder):
        raise DataError(
            f"{folder.name} is an account of teachers (dpal vote), which has no phases, and whose "
            "files DVC does not keep; nothing was written, copy its folder back from your own "
            "backup, and compare it with the ledger: dpal verify "
            f"{folder.certificate} --ledger {folder.root} --key own"
        )


def _ledger(named: str | None, campaign: CampaignFolder) -> tuple[Sequence[Entry] | None, str]:
    """Entries of the ledger, or why there are none."""
    if named is not None:
        return entries_of(named), ""
    try:
        place = campaign.root if campaign.root.is_dir() else campaign.root.parent
        return entries_of(str(place)), ""
    except LedgerError as error:
        return None, f"{error}"


def _recorded_remote(campaign: CampaignFolder) -> str | None:
    if not (campaign.root / RECORD).is_file():
        return None
    remote = campaign.read_record().get("config", {}).get("runtime", {}).get("dvc_remote")
    return None if remote is None else str(remote)
