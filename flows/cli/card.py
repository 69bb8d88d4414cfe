"""`dpal card`: the model card of a finished run of any kind that releases a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.terminal import out

EXAMPLE = "Example: dpal card artifacts/clinic --to clinic-card"


def card_command(
    place: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a finished run.")],
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="For the card; left out, the same.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
) -> None:
    """Write what a model promises, what it does not protect, and what it is worth."""
    from dpal.files.artifacts import CampaignFolder
    from dpal.reports.validation_figures import percent
    from dpal.runs.model_card import write_model_card

    target = place if to is None else to
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
    folder = CampaignFolder(place)
    card = write_model_card(folder, target)
    if as_json:
        typer.echo(json.dumps(card, indent=2))
        return
    results = card["results"]
    if results["majority"] is not None:
        said = f"{percent(results['headline'])}, always the most frequent answer "
        out.print(f"validation: {said}{percent(results['majority'])}; balanced accuracy "
                  f"{percent(results['balanced_accuracy'])}", markup=False)  # fmt: skip
    if results["worthless"] is not None:
        out.print(results["worthless"], style="bold red", markup=False)
    text, data = (target / path.name for path in folder.cards)
    out.print(f"wrote {text} and {data}", markup=False, soft_wrap=True)
