"""The file of predictions: Parquet, or CSV for whoever joins it to a table by hand.

Both have the same columns. A cell of CSV holds one value: `probabilities` is one column a class,
and lists are parted by semicolons, as labels are where people give them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from dpal.errors import DataError
from dpal.files.atomic_writes import atomic_write, write_private_parquet
from dpal.files.csv_injection import as_cell
from dpal.inference.answers import ModelAnswers
from dpal.inference.released_model import ReleasedModel
from dpal.labels import Task

_PARQUET, _CSV = ".parquet", ".csv"
_ALL = "probabilities"


def require_new_file(target: Path) -> None:
    """Requires a place where predictions can be written.

    Raises:
      DataError: something is there, or its name says neither Parquet nor CSV.
    """
    if target.suffix not in (_PARQUET, _CSV):
        raise DataError(
            f"predictions are written as Parquet or CSV, and {target} ends in neither; let its "
            "name end in .parquet or .csv"
        )
    if target.exists():
        raise DataError(
            f"{target} exists already, and is left as it is; choose another name or remove it"
        )


def write_predictions(
    target: Path,
    model: ReleasedModel,
    threshold: float,
    batches: Callable[[], Iterator[pa.RecordBatch]],
) -> None:
    """Streams rows of `answered` into a file for its owner alone, whole or not at all.

    Args:
      target: the file, see `require_new_file`.
      model: that said them.
      threshold: as it was said by.
      batches: the rows.

    Raises:
      StorageError: it cannot be written.
    """
    if target.suffix == _PARQUET:
        write_private_parquet(target, _schema(model, threshold), batches)
        return
    with (
        atomic_write(target) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as out,
    ):
        # Quoted, so that a separator of another country's spreadsheets opens no new cell.
        writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC)
        *said, _ = _schema(model, threshold).names
        writer.writerow([*said, *(f"probability {name}" for name in model.class_names)])
        for batch in batches():
            for row in batch.to_pylist():
                writer.writerow([*(_cell(row[name]) for name in said), *row[_ALL]])


def answered(model: ReleasedModel, ids: pa.Array, answers: ModelAnswers) -> pa.RecordBatch:
    """Rows of answers: `id`, and what `ModelAnswers.columns` names.

    Args:
      model: that said them.
      ids: (n,) names of the records.
      answers: of n records.
    """
    schema = _schema(model, answers.threshold)
    columns = answers.columns()
    arrays = [pa.array(columns[name], schema.field(name).type) for name in schema.names[1:]]
    return pa.record_batch([ids.cast(pa.string()), *arrays], schema=schema)


def _schema(model: ReleasedModel, threshold: float) -> pa.Schema:
    numbers = pa.list_(pa.float64(), model.spec.classes)
    if model.spec.task is Task.SINGLE_LABEL:
        said = [("label", pa.int64()), ("class_name", pa.string()), ("probability", pa.float64())]
    else:
        said = [("labels", pa.list_(pa.int64())), ("label_names", pa.list_(pa.string()))]
    about = {
        "class_names": json.dumps(list(model.class_names)),
        "threshold": f"{threshold:g}",
        "temperature": f"{model.temperature or 1.0:.6g}",
    }
    return pa.schema([("id", pa.string()), *said, (_ALL, numbers)], metadata=about)


def _cell(value: str | float | list[str] | list[int]) -> str | float:
    """One value of CSV; a text as a spreadsheet shows it and does not compute it."""
    if isinstance(value, list):
        value = ";".join(map(str, value))
    return as_cell(value) if isinstance(value, str) else value
