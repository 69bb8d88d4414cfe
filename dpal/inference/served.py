"""A released model as it is served: a table of records in, a table of answers out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from dpal.inference.answers import (
    ModelAnswers,
    calibrated_probabilities,
    require_shape,
    require_threshold,
)
from dpal.inference.input_columns import read_records, require_columns
from dpal.inference.released_model import kept_model
from dpal.labels import THRESHOLD

_RECORDS_AT_ONCE = 256  # whose features and logits are in memory together


class BundledModel:
    """ModelAnswers for records in the columns that `input_columns` names."""

    def __init__(self, folder: Path) -> None:
        """Loads a model.

        Args:
          folder: with its description, its weights, and all public files beside them.
        """
        self._model = kept_model(folder)
        self._network = self._model.build()
        self._extractor = self._model.build_extractor()

    def answer(self, records: pd.DataFrame, threshold: float = THRESHOLD) -> pd.DataFrame:
        """One row of answers a record, see `ModelAnswers.columns`.

        Args:
          records: n rows.
          threshold: above which a label is said; of two classes, above which the second one is.

        Raises:
          DataError: a column is not there, or a record cannot be read.
          ParameterError: the threshold is no probability, or does nothing.
        """
        require_threshold(self._model, threshold)
        require_columns(self._model, records)
        parts = [np.empty((0, self._model.spec.classes))]
        for start in range(0, len(records), _RECORDS_AT_ONCE):
            inputs = read_records(self._model, records.iloc[start : start + _RECORDS_AT_ONCE])
            if self._extractor is not None:
                inputs = self._extractor(inputs)
            require_shape(self._model, inputs, "records")
            parts.append(
                calibrated_probabilities(self._model, self._network, inputs, _RECORDS_AT_ONCE)
            )
        guesses = np.concatenate(parts)
        answers = ModelAnswers(model=self._model, probabilities=guesses, threshold=threshold)
        return pd.DataFrame(answers.columns())
