"""Predictions of a released model for new records: post-processing, free of charge.

Records are read as the pool was: a table is encoded by what the import of the pool left in the
model's description, pictures are brought to the same form. Everything streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpal.data.decoded_ahead import decoded_ahead
from dpal.data.importing.import_report import ImportReport
from dpal.data.importing.recipe import ImportRecipe, recipe_in
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.write_pool import import_source
from dpal.data.parquet import schema_of
from dpal.data.readers import RawBatch, apply_extractor, raw_batches
from dpal.data.sources import Content, Role, Source, open_source
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic_writes import workspace
from dpal.inference.answers import (
    ModelAnswers,
    calibrated_probabilities,
    require_shape,
    require_threshold,
)
from dpal.inference.released_model import DESCRIPTION, ReleasedModel, described_model, kept_model
from dpal.labels import THRESHOLD
from dpal.runs.kinds import require_model
from dpal.runs.predicted_file import answered, require_new_file, write_predictions
from dpal.runs.prediction_picture_check import PictureCheck
from dpal.runs.released_phase import released_calibration, released_weights


def open_model(place: Path) -> ReleasedModel:
    """Finds a model: in a run's folder the one that it releases, or one that MLflow kept.

    Raises:
      DataError: there is none, its kind has none, or an earlier version began the campaign.
    """
    kept = place / "artifacts" if (place / "artifacts" / DESCRIPTION).is_file() else place
    if (kept / DESCRIPTION).is_file():
        return kept_model(kept)
    folder = CampaignFolder(place)
    record = folder.read_record()
    require_model(folder)
    if "model" not in record:
        raise DataError(
            f"{place} was begun by an earlier version, which did not write down how its records "
            "are read; run the same command again, which releases nothing more, and predict then"
        )
    files = record.get("model_files") or _files_in(record["config"])
    public, backbone = (
        None if files[name] is None else Path(files[name]) for name in ("weights", "backbone")
    )
    fitted = released_calibration(folder) or {}
    facts = {**record["model"], "temperature": fitted.get("temperature")}
    return described_model(facts, released_weights(folder), public, backbone)


def _files_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Public files of a model whose settings name them themselves, as a campaign's do."""
    backbone = settings["data"].get("backbone")
    return {
        "weights": settings["model"].get("weights"),
        "backbone": None if backbone is None else backbone["weights"],
    }


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What came of it.

    Attributes:
      rows: records that were predicted.
      counts: how many were said to have each class or label.
      dropped: records that could not be read, by reason.
      temperature: what logits were divided by; 1 leaves them.
      noted: what else is odd about records, and how often.
      unread: of columns of numbers, cells that are given and none, which count as missing.
      imputed, clipped, other: cells by column that the model knows less of, see `ReadCells`.
    """

    rows: int
    counts: tuple[int, ...]
    temperature: float = 1.0
    dropped: Mapping[str, int] = field(default_factory=dict)
    noted: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    imputed: Mapping[str, int] = field(default_factory=dict)
    clipped: Mapping[str, int] = field(default_factory=dict)
    other: Mapping[str, int] = field(default_factory=dict)


def predict(
    model: ReleasedModel,
    place: Path,
    target: Path,
    settings: ImportSettings,
    *,
    threshold: float = THRESHOLD,
    calibrated: bool = True,
    device: str = "cpu",
    physical_batch: int = 256,
    on_read: Callable[[int], object] = lambda count: None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Predicted:
    """Writes what a model says of records: id, classes or labels, all probabilities.

    Args:
      model: as `open_model` finds it.
      place: whatever can be imported; a pool is read as it is.
      target: the file to write, Parquet or CSV as its name ends, readable for its owner alone.
      settings: of the import.
      threshold: above which a label is said; of two classes, above which the second one is.
      calibrated: whether probabilities are those at the model's temperature, where it has one.
      device: where the model computes.
      physical_batch: records per forward pass.
      on_read: told how many more records were read, which comes first, unless they are a pool.
      on_rows: told how many more records were predicted.

    Raises:
      DataError: records are of another kind than those that the model learned from, or the
        target is there already.
    """
    require_threshold(model, threshold)
    require_new_file(target)
    if not calibrated:
        model = replace(model, temperature=None)
    network = model.build().to(device)
    with _records(model, place, settings, target, on_read) as (source, report):
        counts = np.zeros(model.spec.classes, np.int64)
        check = PictureCheck(model=model, extractor=source.extractor)
        rows = 0

        def looked_at() -> Iterator[RawBatch]:
            for batch in raw_batches(source, ["id", source.content.value]):
                if source.content is Content.IMAGE:
                    check.require(*batch.table.columns)
                yield batch

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch, decoded in decoded_ahead(source, looked_at()):
                inputs = apply_extractor(source, decoded)
                require_shape(model, inputs, f"records of {place}")
                guesses = calibrated_probabilities(model, network, inputs, physical_batch)
                answers = ModelAnswers(model=model, probabilities=guesses, threshold=threshold)
                counts[:] += answers.counts
                rows += len(guesses)
                on_rows(len(guesses))
                yield answered(model, batch.table.column(0), answers)

        write_predictions(target, model, threshold, batches)
    said, temperature = tuple(counts.tolist()), model.temperature or 1.0
    if report is None:
        return Predicted(rows=rows, counts=said, temperature=temperature)
    return Predicted(
        rows=rows,
        counts=said,
        temperature=temperature,
        dropped=report.dropped,
        noted=report.noted,
        unread=report.unread,
        imputed=report.imputed,
        clipped=report.clipped,
        other=report.other,
    )


@contextmanager
def _records(
    model: ReleasedModel,
    place: Path,
    settings: ImportSettings,
    target: Path,
    on_read: Callable[[int], object],
) -> Iterator[tuple[Source, ImportReport | None]]:
    """Records as a source that the model reads; imported first, where they are no pool.

    Raises:
      DataError: they are a pool whose columns became other numbers than those of the model's own.
    """
    encoding, extractor = model.encoding, model.build_extractor()

    def opened(path: Path) -> Source:
        source = open_source(
            path, Role.POOL, label_column="label", encoding=encoding, content=model.content
        )
        return replace(source, extractor=extractor, has_split=False, label_column=None)

    if _is_pool(place, model):
        _require_same_columns(place, model)
        yield opened(place), None
        return
    recipe = model.recipe or ImportRecipe(
        importer="", content=model.content, task=model.spec.task, classes=model.class_names
    )
    with workspace(target) as folder:
        path = folder / "records.parquet"
        whole = replace(settings, whole=True)
        report = import_source(place, path, whole, like=recipe, on_rows=on_read)
        yield opened(path), report


def _is_pool(place: Path, model: ReleasedModel) -> bool:
    """Whether a file has the model's own columns already.

    Raises:
      DataError: it is called a Parquet file, and cannot be read as one.
    """
    if place.suffix.lower() != ".parquet" or not place.is_file():
        return False
    schema = schema_of(place)
    wanted = model.texts if model.content is Content.TEXT else (model.content.value,)
    if not {"id", *wanted} <= set(schema.names):
        return False
    binary = (pa.binary(), pa.large_binary())
    return model.content is not Content.IMAGE or schema.field("image").type in binary


def _require_same_columns(place: Path, model: ReleasedModel) -> None:
    columns = None if model.recipe is None else model.recipe.columns
    if columns is None:
        return
    recipe = recipe_in(place)
    if recipe is None or recipe.columns != columns:
        raise DataError(
            f"the columns of {place} became numbers in another way than those of the pool that the "
            "model learned from; predict from the table itself, or import it with --like and that "
            "pool"
        )
