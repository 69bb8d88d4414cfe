"""Running what settings say in the terminal, and telling the person what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from dpal.errors import ConfigError, TrainingStopped
from dpal.files.artifacts import CampaignFolder
from dpal.reports.commands import verify_here
from dpal.reports.improvement import cost_table, improvement_table, pollution_table
from dpal.reports.methods import methods_table
from dpal.reports.summary import figures_in_words, spent_table, validation_table
from dpal.reports.vote_tables import cost_table as votes_table
from dpal.reports.voting_report import told
from dpal.runs.kinds import CAMPAIGN, IMPROVEMENT, VOTING, AnyConfig, RunKind, folder_of, kind_of
from flows.cli.terminal import (
    as_typed_here,
    err,
    how_to_open_mlflow,
    how_to_open_prefect,
    out,
    show,
    stop_at_once_on_interrupt,
)


def run_here(config: AnyConfig, redraw: Sequence[str] = ()) -> None:
    """Runs or continues what settings say in this process. Prints its folder last."""
    kind = kind_of(config)
    if redraw and kind is not CAMPAIGN:
        raise ConfigError(
            "--redraw is for trainings of campaigns; name the campaign that trains the start"
        )
    from flows.cli.orchestrator import needing_prefect, starting_prefect

    err.print("starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    with starting_prefect():
        from prefect.exceptions import CancelledRun, Pause

        flow = _flow_of(kind)
    folder = folder_of(config)
    try:
        with needing_prefect():
            flow(config, *([tuple(redraw)] if redraw else []))
    except Pause as waiting:
        out.print(f"paused: {waiting}", markup=False)
    except CancelledRun as stopped:
        raise TrainingStopped(str(stopped)) from None
    else:
        _SHOWN[kind.name](folder)
        _tell_where(folder, config)
    print(folder.root)  # noqa: T201  plain, for scripts


def _flow_of(kind: RunKind) -> Callable[..., Any]:
    module, _, name = kind.entrypoint.rpartition(".")
    flow: Callable[..., Any] = getattr(import_module(module), name)
    return flow


def _tell_where(folder: CampaignFolder, config: AnyConfig) -> None:
    """Where the results are, and the command that proves them, as it works on this machine."""
    from dpal.runs.open_ledger import key_word
    from tasks.tracking.runs import tracking_uri

    out.print(f"report:   {folder.report}")
    for what, page in (("page", folder.report_page), ("ledger", folder.ledger_page)):
        if page.is_file():
            out.print(f"{what + ':':<9} {page}")
    model = folder.phase(len(folder.finished_phases()) - 1).model
    command = verify_here(folder, key_word(config.runtime), model)
    out.print(f"check:    {as_typed_here(command)}", markup=False)
    out.print(f"MLflow:   {how_to_open_mlflow(tracking_uri(config.runtime))}")
    out.print(f"Prefect:  {how_to_open_prefect()}")


def _show_campaign(folder: CampaignFolder) -> None:
    phases, summary = folder.finished_phases(), folder.read_record()["plan"]
    show(validation_table(phases))
    show(spent_table(phases[-1], summary))
    out.print(figures_in_words(summary["accountant"]))


def _show_improvement(folder: CampaignFolder) -> None:
    summary, metrics = folder.read_record()["plan"], folder.finished_phases()[0]
    show(improvement_table(summary, metrics))
    show(cost_table(summary))
    if "irrelevant_chosen" in metrics:
        show(pollution_table(metrics))


def _show_voting(folder: CampaignFolder) -> None:
    summary = folder.read_record()["plan"]
    methods = json.loads((folder.root / "methods.json").read_text(encoding="utf-8"))
    show(methods_table(methods))
    show(votes_table(summary))
    for sentence in told(summary, folder.finished_phases()[0], methods):
        out.print(sentence, markup=False)


_SHOWN = {
    CAMPAIGN.name: _show_campaign,
    IMPROVEMENT.name: _show_improvement,
    VOTING.name: _show_voting,
}
