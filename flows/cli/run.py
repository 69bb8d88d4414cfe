"""Running a campaign in the terminal, and telling the person what came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dpal.config.campaign import CampaignConfig
from dpal.config.improvement import PublicConfig
from dpal.config.parse import AnyConfig
from dpal.config.runtime import RuntimeConfig
from dpal.config.voting import PateConfig
from dpal.errors import ConfigError, TrainingStopped
from dpal.files.artifacts import CampaignFolder
from dpal.reports.commands import verify_here
from dpal.reports.improvement import cost_table, improvement_table, pollution_table
from dpal.reports.summary import figures_in_words, spent_table, validation_table
from dpal.reports.vote_tables import cost_table as votes_table
from dpal.reports.voting_report import methods_table, told
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
    if redraw and not isinstance(config, CampaignConfig):
        raise ConfigError(
            "--redraw is for trainings of campaigns; name the campaign that trains the start"
        )
    if isinstance(config, PateConfig):
        vote_here(config)
    elif isinstance(config, PublicConfig):
        improve_here(config)
    else:
        _run_campaign(config, redraw)


def improve_here(config: PublicConfig) -> None:
    """Runs or continues an improvement in this process. Prints its folder last."""
    from flows.cli.orchestrator import needing_prefect, starting_prefect

    err.print("starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    with starting_prefect():
        from prefect.exceptions import CancelledRun, Pause

        from dpal.runs.improvement_run import improvement_folder
        from flows.public import improve_model
        from tasks.tracking.runs import tracking_uri

    folder = improvement_folder(config)
    try:
        with needing_prefect():
            improve_model(config)
    except Pause as waiting:
        out.print(f"paused: {waiting}", markup=False)
    except CancelledRun as stopped:
        raise TrainingStopped(str(stopped)) from None
    else:
        summary, metrics = folder.read_record()["plan"], folder.finished_phases()[0]
        show(improvement_table(summary, metrics), left=("validation",))
        show(cost_table(summary), left=("release", "how"))
        if "irrelevant_chosen" in metrics:
            show(pollution_table(metrics), left=("of",))
        out.print(f"report:   {folder.report}")
        _tell_check(folder, config.runtime)
        out.print(f"MLflow:   {how_to_open_mlflow(tracking_uri(config.runtime))}")
        out.print(f"Prefect:  {how_to_open_prefect()}")
    print(folder.root)  # noqa: T201  plain, for scripts


def vote_here(config: PateConfig) -> None:
    """Runs or continues private voting in this process. Prints its folder last."""
    from flows.cli.orchestrator import needing_prefect, starting_prefect

    err.print("starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    with starting_prefect():
        from prefect.exceptions import CancelledRun

        from flows.pate import vote_and_learn
        from tasks.prepare_voting import ensemble_folder
        from tasks.tracking.runs import tracking_uri

    folder = ensemble_folder(config)
    try:
        with needing_prefect():
            vote_and_learn(config)
    except CancelledRun as stopped:
        raise TrainingStopped(str(stopped)) from None
    summary = folder.read_record()["plan"]
    methods = json.loads((folder.root / "methods.json").read_text(encoding="utf-8"))
    show(methods_table(methods), left=("method",))
    show(votes_table(summary), left=("", "account"))
    for sentence in told(summary, folder.finished_phases()[0], methods):
        out.print(sentence, markup=False)
    out.print(f"report:   {folder.report}")
    _tell_check(folder, config.runtime)
    out.print(f"MLflow:   {how_to_open_mlflow(tracking_uri(config.runtime))}")
    out.print(f"Prefect:  {how_to_open_prefect()}")
    print(folder.root)  # noqa: T201  plain, for scripts


def _tell_check(folder: CampaignFolder, runtime: RuntimeConfig) -> None:
    """The command that proves all of it, as it works on this machine."""
    from dpal.runs.open_ledger import key_word

    model = folder.phase(len(folder.finished_phases()) - 1).model
    out.print(
        f"check:    {as_typed_here(verify_here(folder, key_word(runtime), model))}", markup=False
    )


def _run_campaign(config: CampaignConfig, redraw: Sequence[str]) -> None:
    from flows.cli.orchestrator import needing_prefect, starting_prefect

    err.print("starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    with starting_prefect():
        from prefect.exceptions import CancelledRun, Pause

        from dpal.runs.campaign_run import folder_of
        from flows.campaign import run_campaign
        from tasks.tracking.runs import tracking_uri

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
        out.print(figures_in_words(config.privacy.accountant.value))
        out.print(f"report:   {folder.report}")
        out.print(f"page:     {folder.report_page}")
        out.print(f"ledger:   {folder.ledger_page}")
        _tell_check(folder, config.runtime)
        out.print(f"MLflow:   {how_to_open_mlflow(tracking_uri(config.runtime))}")
        out.print(f"Prefect:  {how_to_open_prefect()}")
    print(folder.root)  # noqa: T201  plain, for scripts
