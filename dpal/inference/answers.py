"""What a released model answers of records: probabilities, and what is said by a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal import check
from dpal.errors import DataError, ParameterError
from dpal.inference.released_model import ReleasedModel
from dpal.labels import THRESHOLD, Label, Task
from dpal.training.predictions import Probabilities, at_temperature, probabilities


def calibrated_probabilities(
    model: ReleasedModel, network: nn.Module, inputs: Tensor, physical_batch: int
) -> Probabilities:
    """Probabilities (n, classes) of records (n, *input_shape), at the model's temperature."""
    guesses = probabilities(network, inputs, physical_batch=physical_batch, task=model.spec.task)
    if model.temperature is None:
        return guesses
    return at_temperature(model.spec.task, guesses, model.temperature)


def require_shape(model: ReleasedModel, inputs: Tensor, named: str) -> None:
    """Requires that records (n, *shape) are of the form that a model learned from.

    Raises:
      DataError: they are of another.
    """
    shape, wanted = tuple(inputs.shape[1:]), model.spec.input_shape
    if shape != wanted:
        raise DataError(
            f"{named} have shape {shape}, and the model learned from {wanted}; bring them to that "
            "form first"
        )


def require_threshold(model: ReleasedModel, threshold: float) -> None:
    """Requires a threshold that does something to what a model says.

    Raises:
      ParameterError: it is no probability, or is for a model of one class out of three or more.
    """
    check.inside(0, 1, threshold=threshold)
    classes = model.spec.classes
    if model.spec.task is Task.SINGLE_LABEL and classes > 2 and threshold != THRESHOLD:
        raise ParameterError(
            f"a threshold is for two classes or for several labels, and the model says one of "
            f"{classes} classes, the most probable one; leave the threshold out and use the "
            "column of probabilities"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelAnswers:
    """What a model says of n records.

    Attributes:
      model: that says it.
      probabilities: (n, classes).
      threshold: above which a label is said; of two classes, above which the second one is.
    """

    model: ReleasedModel
    probabilities: Probabilities
    threshold: float = THRESHOLD

    @property
    def counts(self) -> NDArray[np.int64]:
        """(classes,) of how many records each class or label is said."""
        return np.asarray(self._said().sum(axis=0), dtype=np.int64)

    def labels(self) -> list[Label]:
        """One class, or a 0 or 1 for each label, of each record."""
        rows: list[list[int]] = self._said().astype(int).tolist()
        if self.model.spec.task is Task.MULTI_LABEL:
            return [tuple(row) for row in rows]
        return [row.index(1) for row in rows]

    def columns(self) -> dict[str, list[Any]]:
        """Columns of n values.

        One label: `label` (the class number), `class_name`, `probability` (of that class).
        Several: `labels` and `label_names`, lists. Both: `probabilities`, in class order.
        """
        said, names = self._said(), self.model.class_names
        numbers = [np.flatnonzero(row).tolist() for row in said]
        everything = self.probabilities.tolist()
        if self.model.spec.task is Task.MULTI_LABEL:
            named = [[names[number] for number in row] for row in numbers]
            return {"labels": numbers, "label_names": named, "probabilities": everything}
        best = [row[0] for row in numbers]
        return {
            "label": best,
            "class_name": [names[number] for number in best],
            "probability": self.probabilities[said].tolist(),
            "probabilities": everything,
        }

    def _said(self) -> NDArray[np.bool_]:
        """(n, classes) whether each class or label is said."""
        if self.model.spec.task is Task.MULTI_LABEL:
            return self.probabilities > self.threshold
        classes = self.probabilities.shape[1]
        best = self.probabilities.argmax(axis=1)
        if classes == 2 and self.threshold != THRESHOLD:
            best = (self.probabilities[:, 1] > self.threshold).astype(np.int64)
        return np.asarray(np.arange(classes) == best[:, None])
