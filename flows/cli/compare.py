"""`dpal compare`: campaigns side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpal.errors import DataError
from flows.cli.folder_arguments import campaign_folder
from flows.cli.terminal import out, print_table

EXAMPLE = "Example: dpal compare artifacts/first artifacts/second --plot compared.png"


def compare(
    campaigns: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Campaign folders, or their names.")
    ],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw accuracy over labels and epsilon.")
    ] = None,
) -> None:
    """Set campaigns side by side: promises, what was spent, labels, accuracy."""
    from dpal.reports.campaigns_side_by_side import Compared, comparability_note, comparison_table
    from dpal.runs.released_phase import reached

    compared = []
    for folder in map(campaign_folder, campaigns):
        if kind := folder.read_record().get("kind"):
            raise DataError(f"{folder.name} is no campaign (kind: {kind}); leave it out")
        phases = folder.finished_phases()
        if not phases:
            raise DataError(
                f"campaign {folder.name} has no finished phase to compare yet; leave it out, or "
                "continue it with `dpal run`"
            )
        summary = folder.read_record()["plan"]
        compared.append(Compared(summary=summary, phases=phases, reached=reached(folder)))
    print_table(comparison_table(compared))
    out.print(comparability_note(compared), markup=False)
    if plot is not None:
        from dpal.reports.plots.campaign import comparison_curves
        from dpal.reports.plots.style import save

        save(comparison_curves(compared), plot)
        out.print(str(plot), markup=False)
