"""`dpal doctor`: is this installation able to run what settings say?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpal.config.campaign import parse_config
from flows.cli.read_settings import load_config
from flows.cli.terminal import out

EXAMPLE = "Example: dpal doctor --config clinic.yaml"


def doctor(
    config: Annotated[Path | None, typer.Option(help="Check what this campaign needs.")] = None,
) -> None:
    """Check the installation, the servers and the data remote, and say what to do."""
    from flows.ops.doctor import examine

    settings = load_config(config, []) if config else parse_config({"name": "doctor"})
    problems = 0
    for finding in examine(settings):
        problems += bool(finding.advice)
        mark, style = ("!!", "red") if finding.advice else ("ok", "green")
        advice = f"  -> {finding.advice}" if finding.advice else ""
        out.print(f"[{style}]{mark}[/]  {finding.what:<12} ", end="", markup=True)
        out.print(f"{finding.state}{advice}", markup=False)
    if problems:
        raise typer.Exit(2)
