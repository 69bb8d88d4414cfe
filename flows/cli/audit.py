"""`dpal audit`: a configuration or a run, attacked with its own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from dpal.config.runtime import RunConfig
from dpal.errors import ParameterError
from dpal.runs.kinds import parse_any
from flows.cli.read_settings import Settings, load_values
from flows.cli.terminal import err, out, print_table, stop_at_once_on_interrupt

EXAMPLE = "Example: dpal audit artifacts/digits"

_FAILED = 1


def audit_command(
    campaign: Annotated[
        Path, typer.Argument(metavar="FILE|DIR", help="Configuration (YAML), or a run's folder.")
    ],
    settings: Settings = [],  # noqa: B006
    canaries: Annotated[
        int, typer.Option(min=10, help="Canaries to train on; more find smaller defects.")
    ] = 1000,
    steps: Annotated[
        int,
        typer.Option(min=1, help="Most steps of training; a longer plan is shortened, and the "
                     "claim computed anew for what is run."),
    ] = 400,
    draws: Annotated[
        int, typer.Option(min=1 << 16, help="Values drawn from each sampler of noise.")
    ] = 1 << 22,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of tables.")
    ] = False,
) -> None:  # fmt: skip
    """Attack a run's noise, sampling, selection, training, votes and ledger; exit 1 on a defect.

    It reads a public validation set, or made-up records in place of a protected one, and canaries
    and teachers of its own; nothing is charged.
    """
    config = _config_of(campaign, settings)
    from flows.cli.orchestrator import needing_prefect, starting_prefect

    err.print("starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    with starting_prefect():
        from dpal.audit.audit_campaign_plan import Effort
        from dpal.reports.audit_summary import audit_verdict, defects, findings_tables
        from dpal.runs.kinds import folder_of
        from flows.audit import audit_run
        from tasks.audit import TEXT

    effort = Effort(
        canaries=canaries,
        most_steps=steps,
        draws=draws,
        physical_batch=config.runtime.physical_batch,
    )
    with needing_prefect():
        report = audit_run(cast("Any", config), effort)
    if as_json:
        print(json.dumps(report.record(), indent=2))  # noqa: T201
    else:
        for table in findings_tables(report):
            print_table(table)
        out.print(audit_verdict(report), markup=False)
        for defect in defects(map(vars, report.findings)):
            out.print(f"DEFECT  {defect}", style="red", markup=False)
        out.print(f"report: {folder_of(config).root / 'audit' / TEXT}")
    if not report.passed:
        raise typer.Exit(_FAILED)


def _config_of(path: Path, settings: list[str]) -> RunConfig:
    """The configuration in a file, or the one that a run was run with."""
    if not path.is_dir():
        return parse_any(load_values(path, settings))
    from dpal.files.artifacts import RECORD, CampaignFolder
    from dpal.runs.read_recorded_settings import recorded_settings

    if settings:
        raise ParameterError(
            "--set changes a configuration, and the folder of a run is audited as it was run; "
            "leave it out, or name the configuration's file"
        )
    if not (path / RECORD).is_file():
        raise ParameterError(
            f"{path} is not the folder of a run; `dpal status` lists the ones there are"
        )
    return recorded_settings(CampaignFolder(path))
