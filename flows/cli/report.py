"""`dpal report`: writes the report of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.folder_arguments import CampaignDir, campaign_folder
from flows.cli.terminal import out

EXAMPLE = "Example: dpal report artifacts/digits --metrics results"


def report(
    folder: CampaignDir,
    metrics: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also write figures and pictures there, for DVC."),
    ] = None,
) -> None:
    """Write the report of a run again from its files, and print its path.

    Of an account of teachers (dpal vote) it shows what was released, and what that cost.
    """
    from dpal.runs.make_report import make_report

    place = campaign_folder(folder)
    out.print(str(make_report(place)), markup=False)
    if metrics is not None:
        from dpal.runs.dvc_metrics_files import write_experiment_files

        for written in write_experiment_files(place, metrics):
            out.print(str(written), markup=False)
