"""`dpal desk`: notices labels and new files, and has campaigns start or go on then."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: dpal desk --listen 8095"

Artifacts = Annotated[Path, typer.Option(help="Folder of all campaigns.")]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Listen = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="Port that Label Studio calls, to look at once."),
]


def desk(
    artifacts: Artifacts = Path("artifacts"), listen: Listen = None, host: Host = "127.0.0.1"
) -> None:
    """Stay, and notice labels and new files: campaigns start or go on by themselves then.

    Looks at campaigns that wait for people every minute, and at deployed watches as their
    settings say, without a flow run for it. `dpal serve` starts one; elsewhere one is needed for
    each folder of campaigns, in the folder in which runs work.
    """
    from flows.ops.watch_labels_and_files import run_desk

    run_desk(artifacts, host, listen)
