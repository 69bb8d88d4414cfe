"""Models of campaigns on a table, on pictures and on texts, as a registry hands them out."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import yaml
from PIL import Image

import dpal
from dpal.config.campaign import CampaignConfig
from dpal.data.importing.settings import ImportSettings, PictureRule
from dpal.data.importing.write_pool import import_source
from dpal.runs.first_settings import first_settings, look_at
from dpal.runs.predict import open_model, predict
from dpal.runs.prepare_campaign import prepare
from tasks.tracking.mlflow_model import log_model
from tasks.tracking.mlflow_run import TrackedRun
from tests.models.tiny_bert import write_folder


@dataclass(frozen=True, kw_only=True)
class KeptModel:
    """A model, and what it may be compared with.

    Attributes:
      run: the folder of its campaign.
      folder: what MLflow hands out; nothing else of its campaign is needed.
      records: new records, as MLflow takes them.
      expected: what `dpal predict` says of the same records, as a person has them.
    """

    run: Path
    folder: Path
    records: pd.DataFrame
    expected: pd.DataFrame


def table_model(place: Path) -> KeptModel:
    """Numbers with gaps, a flag, a category and a date; two classes."""
    rng = np.random.default_rng(8)
    ages = rng.integers(20, 80, 500)
    table = pd.DataFrame({
        "id": [f"r{number}" for number in range(500)],
        "age": np.where(rng.random(500) < 0.1, "", ages.astype(str)),
        "smokes": rng.integers(0, 2, 500),
        "job": np.array(["nurse", "cook", "?"])[rng.integers(0, 3, 500)],
        "seen": [f"2025-{1 + number % 12:02d}-11" for number in range(500)],
        "ill": np.where(ages + rng.normal(0, 5, 500) > 50, "yes", "no"),
    })  # fmt: skip
    source = place / "people.csv"
    table.to_csv(source, index=False)
    settings = ImportSettings(labels=("ill",), held_out=0.3)
    run, folder = _kept(place, source, settings)
    records = pd.read_csv(source)
    return KeptModel(run=run, folder=folder, records=records, expected=_said(run, source))


def picture_model(place: Path) -> KeptModel:
    """RGB pictures of two sizes, which the import brings to one; scattering."""
    rng, pictures = np.random.default_rng(9), place / "pictures"
    for number in range(160):
        dark, part = number // 4 % 2 == 0, ("train", "test")[number % 4 == 0]
        folder = pictures / part / ("dark" if dark else "light")
        folder.mkdir(parents=True, exist_ok=True)
        size = (16, 16 + number % 2, 3)
        pixels = rng.normal(80 if dark else 150, 60, size).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03}.{('png', 'bmp')[number % 3 == 0]}")
    rule = PictureRule(size=(16, 16))
    run, folder = _kept(place, pictures, ImportSettings(picture_rule=rule))
    new = place / "new"
    shutil.copytree(pictures / "train" / "dark", new)  # also of the other size
    records = pd.DataFrame({"image": [path.read_bytes() for path in sorted(new.iterdir())]})
    return KeptModel(run=run, folder=folder, records=records, expected=_said(run, new))


def text_model(place: Path) -> KeptModel:
    """Texts, read by a small public model; three classes."""
    rng, source = np.random.default_rng(10), place / "reviews.jsonl"
    words = np.array(["bad film", "the film was", "very good"])
    rows = []
    for number in range(300):
        label = int(rng.integers(0, 3))
        text = f"the {words[label]} {words[rng.integers(0, 3)]}"
        rows.append({"id": f"t{number}", "text": text, "label": "abc"[label]})
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    public = write_folder(place / "bert")
    settings = ImportSettings(labels=("label",), texts=("text",), held_out=0.3)
    run, folder = _kept(place, source, settings, weights=public)
    expected = _said(run, source)
    shutil.rmtree(public)  # the model has what it needs with it
    records = pd.DataFrame({"text_a": [row["text"] for row in rows]})
    return KeptModel(run=run, folder=folder, records=records, expected=expected)


MAKERS = {"table": table_model, "pictures": picture_model, "texts": text_model}


def as_json(records: pd.DataFrame) -> list[dict[str, Any]]:
    """Records as they are sent: bytes in base64, and nothing for what is missing."""
    rows = json.loads(records.map(
        lambda cell: base64.b64encode(cell).decode() if isinstance(cell, bytes) else cell
    ).to_json(orient="records"))  # fmt: skip
    assert isinstance(rows, list)
    return rows


def _said(run: Path, source: Path) -> pd.DataFrame:
    target = run / "said.parquet"
    predict(open_model(run), source, target, ImportSettings())
    return pq.read_table(target).to_pandas()


def _kept(
    place: Path,
    source: Path,
    how: ImportSettings,
    *,
    weights: Path | None = None,
) -> tuple[Path, Path]:
    """Imports, runs a campaign, logs its model; returns the run's folder and the model's."""
    pool = place / "pool.parquet"
    import_source(source, pool, how)
    text = first_settings(look_at(pool), "kept", why_public="made up for a test", weights=weights)
    values = yaml.safe_load(text)
    values["runtime"] = {"artifacts": str(place / "artifacts")}
    config = dpal.settings(values)
    assert isinstance(config, CampaignConfig)
    run = dpal.run(config).root
    mlflow.set_tracking_uri(f"sqlite:///{place / 'mlflow.sqlite'}")
    experiment = mlflow.create_experiment("kept", (place / "mlflow").as_uri())
    with mlflow.start_run(experiment_id=experiment) as told:
        at = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
        uri = log_model(prepare(config), TrackedRun(run_id=told.info.run_id, at=at))
    return run, Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(place / "kept")))
