"""The model as MLflow serves it: the pool's own columns in, classes and probabilities out.

Logged as source code next to safetensors weights, so that loading it runs no pickle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext
from safetensors.torch import load_file

from dpal.data.catalog import Content
from dpal.data.readers import decode
from dpal.models.registry import build_model
from dpal.models.spec import ModelSpec
from dpal.training.evaluation import probabilities

_BATCH = 256


class CampaignModel(PythonModel):
    """Classifies records in the columns `image` (PNG or JPEG bytes) or `features`."""

    def load_context(self, context: PythonModelContext) -> None:
        """Builds the architecture and loads its weights."""
        facts = json.loads(Path(context.artifacts["model_spec"]).read_text(encoding="utf-8"))
        self._content = Content(facts["content"])
        self._names = facts["class_names"]
        sizes = {key: tuple(facts["spec"][key]) for key in ("input_shape", "hidden")}
        self._model = build_model(ModelSpec(**{**facts["spec"], **sizes}))
        self._model.load_state_dict(load_file(context.artifacts["weights"]))

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Returns one row a record: label, its name and its probability."""
        kind = pa.binary() if self._content is Content.IMAGE else pa.list_(pa.float32())
        column = pa.array(model_input[self._content.value].tolist(), kind)
        guesses = probabilities(
            self._model, decode(self._content, column, first_row=0), physical_batch=_BATCH
        )
        best = guesses.argmax(axis=1)
        return pd.DataFrame(
            {
                "label": best,
                "class_name": [self._names[i] if self._names else str(i) for i in best],
                "probability": guesses.max(axis=1),
            }
        )


set_model(CampaignModel())
