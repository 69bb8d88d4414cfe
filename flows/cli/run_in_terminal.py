"""Running what settings say in the terminal, and telling the person what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from dpal.config.runtime import RunConfig
from dpal.errors import ConfigError, TrainingStopped
from dpal.files.artifacts import CampaignFolder
from dpal.reports.verify_commands import verify_here
from dpal.runs.kinds import folder_of, kind_of
from dpal.runs.promised_and_spent import Shown
from flows.cli.terminal import (
    as_typed_here,
    err,
    how_to_open_mlflow,
    how_to_open_prefect,
    out,
    print_table,
    stop_at_once_on_interrupt,
)


def run_here(config: RunConfig, redraw: Sequence[str] = ()) -> None:
    """Runs or continues what settings say in this process. Prints its folder last."""
    kind = kind_of(config)
    if redraw and not kind.redraws:
        raise ConfigError(
            "--redraw is for trainings of campaigns; name the campaign that trains the start"
        )
    from flows.cli.orchestrator import needing_prefect, starting_prefect

    err.print("starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    with starting_prefect():
        from prefect.exceptions import CancelledRun, Pause

        flow = flow_of(config)
    folder = folder_of(config)
    try:
        with needing_prefect():
            flow(config, *([tuple(redraw)] if redraw else []))
    except Pause as waiting:
        out.print(f"paused: {waiting}", markup=False)
    except CancelledRun as stopped:
        raise TrainingStopped(str(stopped)) from None
    else:
        show_results(kind.use_cases().shown(folder))
        _tell_where(folder, config)
    print(folder.root)  # noqa: T201  plain, for scripts


def flow_of(config: RunConfig) -> Callable[..., Any]:
    """The flow that runs such settings."""
    module, _, name = kind_of(config).entrypoint.rpartition(".")
    flow: Callable[..., Any] = getattr(import_module(module), name)
    return flow


def show_results(results: Shown) -> None:
    """Prints tables and sentences, in their order."""
    for shown in results:
        if isinstance(shown, str):
            out.print(shown, markup=False)
        else:
            print_table(shown)


def _tell_where(folder: CampaignFolder, config: RunConfig) -> None:
    """Where the results are, and the command that proves them, as it works on this machine."""
    from dpal.runs.open_ledger import key_word
    from dpal.runs.released_phase import released_weights
    from tasks.tracking.campaign_runs import tracking_uri

    out.print(f"report:   {folder.report}")
    pages = {"page": folder.report_page, "ledger": folder.ledger_page, "card": folder.cards[0]}
    for what, page in pages.items():
        if page.is_file():
            out.print(f"{what + ':':<9} {page}")
    model = released_weights(folder) if folder.finished_phases() else None
    command = verify_here(folder, key_word(config.runtime), model)
    out.print(f"check:    {as_typed_here(command)}", markup=False)
    out.print(f"MLflow:   {how_to_open_mlflow(tracking_uri(config.runtime))}")
    if (address := how_to_open_prefect()) is not None:
        out.print(f"Prefect:  {address}")
