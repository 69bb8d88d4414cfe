"""Source of models that were registered before dpal copied itself beside them, as it was.

The model as MLflow serves it: the pool's own columns in, labels and probabilities out.

Logged as source code next to safetensors weights, so that loading it runs no pickle.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext
from safetensors.torch import load_file

from dpal.data.readers import decode
from dpal.data.sources import Content
from dpal.data.texts import TextEncoding
from dpal.features.extractors import build_extractor, embeds_texts, text_encoding
from dpal.features.spec import ExtractorKind, ExtractorSpec
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import spec_from
from dpal.training.calibration import at_temperature
from dpal.training.evaluation import probabilities
from dpal.training.metrics import THRESHOLD

_BATCH = 256


class CampaignModel(PythonModel):
    """Labels records in the columns `image` (PNG or JPEG bytes), `features` or `text_a`."""

    def load_context(self, context: PythonModelContext) -> None:
        """Builds the architecture and loads its weights."""
        facts = json.loads(Path(context.artifacts["model_spec"]).read_text(encoding="utf-8"))
        self._content = Content(facts["content"])
        self._deep = facts.get("deep", False)  # models of earlier versions saw 8 bits
        self._temperature = facts.get("temperature")
        self._names = facts["class_names"]
        spec = facts["spec"]
        self._task = Task(spec["task"])
        self._texts = facts["texts"]
        # The encoder's sizes and the tokenizer lie beside the weights.
        folder = Path(context.artifacts["weights"]).parent
        built = spec_from(spec)
        features = {**facts["extractor"], "weights": context.artifacts.get("backbone")}
        features["kind"] = ExtractorKind(features["kind"])
        extractor = ExtractorSpec(**features)
        self._extractor = build_extractor(extractor, self._content, texts=len(self._texts))
        self._encoding = None
        if embeds_texts(extractor):
            self._encoding = text_encoding(extractor)
        elif self._content is Content.TEXT:
            built = replace(built, weights=str(folder))
            self._encoding = TextEncoding(folder=folder, max_tokens=built.input_shape[-1])
        self._model = build_model(built)
        self._model.load_state_dict(load_file(context.artifacts["weights"]))

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Returns one row a record: its label, the label's name and probability.

        Of a multi-label task: lists of the labels that are more likely than not, of their
        names, and of the probabilities of all labels.
        """
        column = self._column(model_input)
        records = decode(self._content, column, rows=None, encoding=self._encoding, deep=self._deep)
        guesses = probabilities(
            self._model,
            records if self._extractor is None else self._extractor(records),
            physical_batch=_BATCH,
            task=self._task,
        )
        if self._temperature is not None:
            guesses = at_temperature(self._task, guesses, self._temperature)
        if self._task is Task.MULTI_LABEL:
            likely = [np.flatnonzero(row > THRESHOLD).tolist() for row in guesses]
            return pd.DataFrame(
                {
                    "labels": likely,
                    "label_names": [[self._name(i) for i in labels] for labels in likely],
                    "probabilities": guesses.tolist(),
                }
            )
        best = guesses.argmax(axis=1)
        return pd.DataFrame(
            {
                "label": best,
                "class_name": [self._name(i) for i in best],
                "probability": guesses.max(axis=1),
            }
        )

    def _column(self, records: pd.DataFrame) -> pa.Array:
        """The column of records as a pool's file has it."""
        if self._content is Content.TEXT:
            texts = [pa.array(records[name].tolist(), pa.string()) for name in self._texts]
            return pa.StructArray.from_arrays(texts, self._texts)
        kind = pa.binary() if self._content is Content.IMAGE else pa.list_(pa.float32())
        return pa.array(records[self._content.value].tolist(), kind)

    def _name(self, label: int) -> str:
        return str(self._names[label]) if self._names else str(label)


set_model(CampaignModel())
