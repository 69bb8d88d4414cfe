"""`dpal predict`: what a released model says of new records."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from dpal.data.importing.settings import ImportSettings
from dpal.reports.report import Table
from flows.cli.terminal import out, print_table

EXAMPLE = "Example: dpal predict artifacts/clinic march.csv --id visit_id --to march-predicted.csv"
_REGISTERED = "models:/"
_SHOWN = 20


def predict_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A run's folder, models:/NAME/VERSION or models:/NAME@ALIAS."
        ),
    ],
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="A pool, or whatever dpal import reads.")
    ],
    to: Annotated[Path, typer.Option(metavar="OUT", help="The file to write: .parquet or .csv.")],
    threshold: Annotated[
        float, typer.Option(help="Probability above which a label, or the second class, is said.")
    ] = 0.5,
    uncalibrated: Annotated[
        bool,
        typer.Option(
            "--uncalibrated",
            help="Leave probabilities as the model says them, and fit them to no held-out records.",
        ),
    ] = False,
    ids: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="Column of unique names, to join by.")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where pictures named by a table are.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    mlflow: Annotated[
        str | None, typer.Option(metavar="URI", help="Registry of models:/ addresses.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write classes and probabilities of new records. Costs no budget."""
    from tqdm import tqdm

    from dpal.runs.predict import open_model, predict

    with tempfile.TemporaryDirectory() as folder:
        place = Path(model)
        if model.startswith(_REGISTERED):
            from flows.cli.verify import named_registry
            from tasks.tracking.model_registry import download_model

            registry = named_registry(mlflow)
            place = download_model(model, registry, Path(folder))
        opened = open_model(place)
        shown: dict[str, Any] = {"unit": "rec", "disable": None, "leave": False}
        with tqdm(desc="reading", **shown) as read, tqdm(desc="predicting", **shown) as bar:
            found = predict(
                opened, source, to, ImportSettings(id=ids, pictures=pictures),
                threshold=threshold, calibrated=not uncalibrated, device=device,
                on_read=read.update, on_rows=bar.update,
            )  # fmt: skip
    if as_json:
        typer.echo(json.dumps({"file": str(to), **asdict(found)}, indent=2))
        return
    out.print(f"{found.rows:,} records predicted, in {to}", markup=False)
    if found.temperature != 1:
        done = "softened" if found.temperature > 1 else "sharpened"
        said = f"probabilities are {done} to fit held-out records"
        out.print(f"{said} (temperature {found.temperature:.3g})", markup=False)
    for reason, count in found.dropped.items():
        out.print(f"left out: {count:,} {reason}", markup=False)
    for what, count in found.noted.items():
        out.print(f"note: {count:,} {what}", markup=False)
    for what, cells in (
        ("are no numbers and count as missing", found.unread),
        ("are missing, as none was before, which no model learned from", found.imputed),
        ("are beyond what was seen before, and count as the nearest of that", found.clipped),
        ("are categories that the model does not know, and count as (other)", found.other),
    ):
        for name, count in cells.items():
            out.print(f"note: cells of column {name} that {what}: {count:,}", markup=False)
    rows = [
        (name, f"{count:,}") for name, count in zip(opened.class_names, found.counts, strict=True)
    ]
    print_table(Table("Predicted", ("class", "records"), tuple(rows[:_SHOWN])))
