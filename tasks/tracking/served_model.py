"""The model as MLflow serves it.

Logged as source code next to safetensors weights, so that loading it runs no pickle. Where it is
logged, `dpal` is renamed to the package beside it, which holds what predictions need of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc.model import PythonModel, PythonModelContext


class RefusedRecords(MlflowException):
    """What is wrong with records, in one sentence: a bad request, not a broken server."""

    def __setattr__(self, name: str, value: object) -> None:
        # MLflow's server would set the records themselves before the sentence, and answers of
        # servers end up in logs.
        if name != "message" or "message" not in vars(self):
            super().__setattr__(name, value)


class CampaignModel(PythonModel):
    """Labels records; which columns it takes, its signature says."""

    def load_context(self, context: PythonModelContext) -> None:
        """Builds the architecture and loads its weights."""
        # Not above: MLflow also runs this file when it logs a model, before the package that is
        # named here lies beside it.
        from dpal.inference.served import BundledModel

        self._model = BundledModel(Path(context.artifacts["model_spec"]).parent)

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Returns one row a record.

        One label: `label`, `class_name`, `probability` of that class. Several: `labels` and
        `label_names`, lists of those that are more likely than the threshold. Both:
        `probabilities` of all classes, in their order.

        Args:
          context: of MLflow.
          model_input: records.
          params: `threshold`, if it is to be another than 0.5.
        """
        from dpal.errors import DpalError

        try:
            return self._model.answer(model_input, **(params or {}))
        except DpalError as error:
            raise RefusedRecords(str(error), error_code=INVALID_PARAMETER_VALUE) from None


set_model(CampaignModel())
