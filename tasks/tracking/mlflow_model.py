"""What MLflow is handed of a campaign: its model, and the set on which it was judged."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pyarrow as pa
from mlflow.data.pandas_dataset import from_pandas
from mlflow.models import Model, ModelSignature
from mlflow.models.model import MLMODEL_FILE_NAME
from mlflow.types.schema import (
    AnyType,
    Array,
    ColSpec,
    DataType,
    ParamSchema,
    ParamSpec,
    Schema,
    TensorSpec,
)

import dpal
from dpal.data.readers import raw_batches
from dpal.data.sources import Source
from dpal.data.texts import MODEL_FILES
from dpal.features.extractors import embeds_texts
from dpal.features.spec import ExtractorSpec
from dpal.files.artifacts import CampaignFolder
from dpal.inference.input_columns import InputColumn, InputKind, input_columns
from dpal.inference.released_model import DESCRIPTION, described_model
from dpal.labels import THRESHOLD, Task
from dpal.models.spec import ModelSpec
from dpal.runs.bundle_inference_code import write_bundle
from dpal.runs.campaign import Campaign
from dpal.runs.model_description import describe_model, shape_of_pictures
from dpal.runs.released_phase import released_calibration, released_weights
from tasks.tracking.mlflow_run import TrackedRun

_ANY = AnyType()  # type: ignore[no-untyped-call] # of MLflow
_KINDS: dict[InputKind, DataType | Array | AnyType] = {
    # Of doubles MLflow would refuse whole numbers, and of strings a flag or a column without cells,
    # as pandas reads them. Cells that do not fit, the model refuses itself.
    InputKind.NUMBER: _ANY,
    InputKind.CATEGORY: _ANY,
    InputKind.DATE: _ANY,
    InputKind.TEXT: DataType.string,
    InputKind.PICTURE: DataType.binary,
    # Of floats MLflow would refuse every number that comes as JSON.
    InputKind.NUMBERS: Array(DataType.double),
}
_ANSWERS: dict[Task, list[ColSpec | TensorSpec]] = {
    Task.SINGLE_LABEL: [
        ColSpec(DataType.long, "label"),
        ColSpec(DataType.string, "class_name"),
        ColSpec(DataType.double, "probability"),
        ColSpec(Array(DataType.double), "probabilities"),
    ],
    Task.MULTI_LABEL: [
        ColSpec(Array(DataType.long), "labels"),
        ColSpec(Array(DataType.string), "label_names"),
        ColSpec(Array(DataType.double), "probabilities"),
    ],
}
_PARAMS = ParamSchema([ParamSpec("threshold", DataType.double, THRESHOLD)])
_PROGRAM = Path(__file__).with_name("served_model.py")


def validation_dataset(source: Source) -> Any:
    """A public validation set's ids and labels.

    MLflow digests these columns; a digest of the whole file would commit to private
    records where one file holds the pool, too.
    """
    columns = ["id", str(source.label_column)]
    table = pa.Table.from_batches([batch.table for batch in raw_batches(source, columns)])
    table = table.to_pandas()
    if source.task is Task.MULTI_LABEL:  # MLflow's digest passes over lists
        labels = table[source.label_column]
        table[source.label_column] = ["".join(map(str, row)) for row in labels]
    return from_pandas(
        table,
        source=source.name,
        targets=source.label_column,
        name=source.paths[0].stem,
    )


class _Dated:
    """MLflow's way to save a model of Python code, which notes a given time of its making.

    And not where files were on the machine that it was made on.
    """

    def __init__(self, milliseconds: int) -> None:
        self._made = datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None)

    def save_model(self, path: str, mlflow_model: Model, **how: Any) -> None:
        """As `mlflow.pyfunc.save_model`."""
        mlflow_model.utc_time_created = str(self._made)
        how.pop("validate_serving_input", None)
        mlflow.pyfunc.save_model(path=path, mlflow_model=mlflow_model, **how)
        about = mlflow_model.flavors[mlflow.pyfunc.FLAVOR_NAME]
        about["model_code_path"] = Path(about["model_code_path"]).name
        for kept in about["artifacts"].values():
            kept["uri"] = kept["path"]
        described = {**mlflow_model.to_dict(), "artifact_path": "model"}
        Model.from_dict(described).save(str(Path(path) / MLMODEL_FILE_NAME))


def log_model(campaign: Campaign, run: TrackedRun) -> str:
    """Logs weights, description and certificate as one model; returns its address."""
    return log_weights(
        run,
        released_weights(campaign.folder),
        certified=campaign.folder,
        spec=campaign.plan.spec.model,
        extractor=campaign.plan.spec.extractor,
        source=campaign.pool,
        class_names=campaign.class_names,
    )


def log_weights(
    run: TrackedRun,
    weights: Path,
    *,
    certified: CampaignFolder,
    spec: ModelSpec,
    extractor: ExtractorSpec,
    source: Source,
    class_names: Sequence[str],
) -> str:
    """Logs a certified model; returns its address.

    Args:
      run: that made it.
      weights: its .safetensors file, named model.safetensors.
      certified: the folder with its certificate and the signature.
      spec: its architecture.
      extractor: what makes its features.
      source: records of the kind that it takes.
      class_names: names in class order; empty when the data has none.
    """
    fitted = released_calibration(certified) or {}
    facts = describe_model(spec, extractor, source, class_names)
    facts |= {"temperature": fitted.get("temperature")}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        described = folder / DESCRIPTION
        described.write_text(json.dumps(facts), encoding="utf-8")
        beside = {} if embeds_texts(extractor) else _beside_weights(source)
        backbone = _backbone(extractor, folder)
        model = described_model(facts, weights, None, next(map(Path, backbone.values()), None))
        bundle = write_bundle(folder / "code", model)
        program = folder / _PROGRAM.name
        program.write_text(bundle.renamed(_PROGRAM.read_text(encoding="utf-8")), encoding="utf-8")
        columns = input_columns(model, shape_of_pictures(source))
        logged = Model.log(
            artifact_path=None,
            name="model",
            flavor=_Dated(run.at),
            flavor_name="pyfunc.ModelFromCode",
            run_id=run.run_id,
            python_model=str(program),
            code_paths=None if bundle.folder is None else [str(bundle.folder)],
            artifacts={
                "weights": str(weights),
                "model_spec": str(described),
                **{path.stem: str(path) for path in certified.certified},
                **beside,
                **backbone,
            },
            signature=_signature(columns, spec.task),
            input_example=pd.DataFrame({column.name: [column.example] for column in columns}),
            validate_serving_input=False,  # it would load the model into this process
            metadata={
                "class_names": list(model.class_names),
                "columns": {column.name: column.kind.value for column in columns},
                "dpal": dpal.__version__,
            },
            pip_requirements=list(bundle.requirements),
        )
    return str(logged.model_uri)


def _signature(columns: Sequence[InputColumn], task: Task) -> ModelSignature:
    # No column is required, as far as MLflow knows: what it says of one that is not there repeats
    # the records. The model itself says it in a sentence (`dpal.inference.input_columns`).
    inputs: list[ColSpec | TensorSpec] = [
        ColSpec(_KINDS[column.kind], column.name, required=False) for column in columns
    ]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(_ANSWERS[task]), params=_PARAMS)


def _backbone(extractor: ExtractorSpec, folder: Path) -> dict[str, str]:
    """The public weights that features are made with, under a name of their own."""
    weights = extractor.weights
    if weights is None:
        return {}
    if Path(weights).is_dir():
        copy = folder / "backbone"
        shutil.copytree(weights, copy, ignore=shutil.ignore_patterns(".*"))
        return {"backbone": str(copy)}
    copy = folder / f"backbone{Path(weights).suffix}"
    shutil.copyfile(weights, copy)
    return {"backbone": str(copy)}


def _beside_weights(source: Source) -> dict[str, str]:
    """Public files without which a text model cannot be built, nor read a text."""
    if source.encoding is None:
        return {}
    folder = source.encoding.folder
    return {name: str(folder / name) for name in MODEL_FILES if (folder / name).is_file()}
