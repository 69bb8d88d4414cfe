"""How good a model's predictions of labeled records are: post-processing, free of charge."""

from __future__ import annotations

from torch import Tensor, nn

from dpal.labels import Task
from dpal.training.metrics import evaluation_metrics

# Models of earlier versions, in registries, import it from here.
from dpal.training.predictions import probabilities as probabilities


def evaluate(
    model: nn.Module, inputs: Tensor, labels: Tensor, *, physical_batch: int, task: Task
) -> dict[str, float]:
    """The task's figures (`dpal.training.metrics`) on labeled records, the headline first.

    Args:
      model: from records to logits.
      inputs: (n, *input_shape) decoded records.
      labels: (n,) class numbers, or (n, labels) zeros and ones.
      physical_batch: records per forward pass.
      task: what a label is.
    """
    guesses = probabilities(model, inputs, physical_batch=physical_batch, task=task)
    return evaluation_metrics(task, guesses, labels.numpy())


def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor, *, physical_batch: int) -> float:
    """Share of records whose most probable class is their label."""
    predicted = probabilities(model, inputs, physical_batch=physical_batch).argmax(axis=1)
    return float((predicted == labels.numpy()).mean())
