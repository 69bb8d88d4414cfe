"""`dpal run`: runs what settings say, or goes on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpal.errors import ConfigError
from dpal.runs.kinds import parse_any
from flows.cli.read_settings import Settings, load_values

OptionalFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="Campaign configuration (YAML). [required, except with --on]"
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="DEPLOYMENT",
        help="Have the workers of a deployment on the Prefect server run it, such as "
        "campaign/clinic, and print the page of the run. Without FILE, with the deployment's own "
        "settings.",
    ),
]

Redraw = Annotated[
    list[str],
    typer.Option(
        "--redraw",
        metavar="RELEASE",
        help="Throw away what an unfinished training persisted (such as phase-2/training), start "
        "it over, and charge it a second time; a plan usually spends all of its promise, so "
        "that this rarely fits, and is refused then. Repeatable.",
    ),
]

Sweep = Annotated[
    list[str],
    typer.Option(
        "--sweep",
        metavar="KEY=a,b,c",
        help="Run once for each value (or START:STOP:STEP), each under a promise of its own: what "
        "they cost the same records adds up, unless a data set counts it. The first --sweep is "
        "the horizontal axis, further ones are lines. Repeatable.",
    ),
]
Repeat = Annotated[
    list[str],
    typer.Option(
        "--repeat",
        metavar="KEY=a,b,c",
        help="Runs over which a sweep is averaged, such as model.seed=0,1,2. Repeatable.",
    ),
]
EXAMPLE = (
    "Example: dpal run clinic.yaml --set privacy.epsilon=3; dpal run public.yaml --sweep "
    "choice.labels=1000,3000 --sweep choice.method=random,diverse_public --repeat model.seed=0,1,2"
)


def run_command(
    file: OptionalFile = None,
    settings: Settings = [],  # noqa: B006
    on: On = None,
    redraw: Redraw = [],  # noqa: B006
    sweep: Sweep = [],  # noqa: B006
    repeat: Repeat = [],  # noqa: B006
) -> None:
    """Run what a configuration says, or continue it: a campaign unless it says another kind.

    kind: public improves a private model with public records, kind: pate lets teachers vote and a
    student learn, kind: vote releases votes on ballots. Prints its folder last. With --sweep it is
    run over values, drawn, and compared: over what --repeat names, means have 95 % intervals and
    differences are taken repetition by repetition.
    """
    if on is not None:
        from flows.cli.run_on_deployment import run_on_deployment

        if redraw or sweep or repeat:
            raise ConfigError(
                "--redraw, --sweep and --repeat work where the command runs, and --on gives a run "
                "to workers; use one of the two"
            )
        run_on_deployment(on, file, settings)
        return
    if file is None:
        raise ConfigError("name a configuration (dpal run clinic.yaml), or a deployment with --on")
    values = load_values(file, settings)
    if sweep or repeat:
        from flows.cli.sweep import sweep_here

        sweep_here(values, sweep, repeat)
        return
    config = parse_any(values)
    from flows.cli.run_in_terminal import (
        run_here,  # its tables and figures wait for settings that hold
    )

    run_here(config, redraw)
