"""`dpal plan`: what a run would do and cost, why, and how else it could be planned."""

from __future__ import annotations

import json
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from dpal.errors import ConfigError
from dpal.runs.kinds import kind_of, parse_any
from flows.cli.read_settings import ConfigFile, Settings, load_values
from flows.cli.terminal import err, out, print_table

EXAMPLE = "Example: dpal plan clinic.yaml --sweep privacy.epsilon=2:8:2 --plots figures"

_WIDTH = 96


def plan_command(
    file: ConfigFile,
    settings: Settings = [],  # noqa: B006
    explain: Annotated[
        bool, typer.Option("--explain", help="Say in words why the plan has its numbers.")
    ] = False,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Strategies, methods or mechanisms side by side."),
    ] = False,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="KEY=START:STOP:STEP", help="Plan over values; or KEY=a,b,c."),
    ] = None,
    published: Annotated[
        bool,
        typer.Option("--published", help="What the paper's code plans, and really spends."),
    ] = False,
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse",
            help="Expected accuracy: campaigns, rehearsed on the validation set if it is public.",
        ),
    ] = False,
    plots: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write figures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a run would do and cost, whatever kind it is of. Releases nothing."""
    if sum((explain, compare, published, sweep is not None)) > 1:
        raise ConfigError(
            "--explain, --compare, --published and --sweep are different views of a plan; "
            "ask for one at a time"
        )
    if rehearse and (compare or published or sweep is not None):
        raise ConfigError(
            "--rehearse is of the plan that would run, and --compare, --published and --sweep show "
            "others; leave one of them out"
        )
    values = load_values(file, settings)
    config = parse_any(values)
    err.print(f"planning {config.name} ...", style="dim")  # torch takes seconds to import
    views = import_module(kind_of(config).views).VIEWS
    if compare:
        view = views.compare(config)
    elif published:
        view = views.published(config)
    elif sweep is not None:
        view = views.sweep(config, sweep)
    else:
        view = views.plan(config, explained=explain, rehearsed=rehearse)
    record = dict(view.record)
    if plots is not None:
        from flows.cli.plan_view import save_figures

        record["plots"] = save_figures(view.figures, plots)
    if as_json:
        # Not through the terminal's console, which breaks long lines.
        typer.echo(json.dumps(record, indent=2))
        return
    if "target_epsilon" in record and sweep is None:  # whose plans need not promise the same
        from dpal.reports.plan_and_phase_tables import promise

        out.print(f"{config.name}: {promise(record)}", soft_wrap=True)
    for table in view.tables:
        print_table(table)
    for title, text in view.words:
        out.print(f"\n{title}" if title else "", style="bold")
        out.print(textwrap.fill(text, min(out.width, _WIDTH)), markup=False)
    for path in record.get("plots", ()):
        out.print(f"wrote {path}", markup=False, soft_wrap=True)
