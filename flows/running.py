"""Running a campaign in the terminal, and telling the person what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from dpal.config import CampaignConfig
from dpal.errors import TrainingStopped
from dpal.reports.summary import spent_table, validation_table
from flows.terminal import (
    err,
    how_to_open_mlflow,
    how_to_open_prefect,
    out,
    show,
    stop_at_once_on_interrupt,
)


def run_here(config: CampaignConfig, redraw: Sequence[str] = ()) -> None:
    """Runs or continues a campaign in this process. Prints its folder last."""
    from flows.orchestrator import needing_prefect, starting_prefect

    err.print("starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    with starting_prefect():
        from prefect.exceptions import CancelledRun, Pause

        from flows.campaign import run_campaign
        from tasks.context import folder_of
        from tasks.tracking import tracking_uri

    folder = folder_of(config)
    try:
        with needing_prefect():
            run_campaign(config, tuple(redraw))
    except Pause as waiting:
        out.print(f"paused: {waiting}", markup=False)
    except CancelledRun as stopped:
        raise TrainingStopped(str(stopped)) from None
    else:
        phases = folder.finished_phases()
        show(validation_table(phases))
        show(spent_table(phases[-1]))
        out.print(f"report:   {folder.report}")
        out.print(f"page:     {folder.report_page}")
        out.print(f"ledger:   {folder.ledger_page}")
        out.print(f"MLflow:   {how_to_open_mlflow(tracking_uri(config.runtime))}")
        out.print(f"Prefect:  {how_to_open_prefect()}")
    print(folder.root)  # noqa: T201  plain, for scripts
