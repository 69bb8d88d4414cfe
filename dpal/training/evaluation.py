"""Predictions of a released model: post-processing, free of charge."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal.data.readers import to_input
from dpal.labels import Task
from dpal.training.losses import probabilities_of
from dpal.training.metrics import evaluation_metrics
from dpal.training.physical_batches import chunks


def probabilities(
    model: nn.Module, inputs: Tensor, *, physical_batch: int, task: Task = Task.SINGLE_LABEL
) -> NDArray[np.float64]:
    """Probabilities of classes or labels, shape (n, classes).

    Args:
      model: from records to logits.
      inputs: (n, *input_shape) decoded records.
      physical_batch: records per forward pass.
      task: what a label is, and so what logits mean.
    """
    device = next(model.parameters()).device
    link = probabilities_of(task)
    model.eval()
    with torch.no_grad():
        parts = [
            link(model(to_input(chunk.to(device))).double())[: rows.stop - rows.start]
            for rows, chunk in chunks(inputs, physical_batch=physical_batch)
        ]
    return torch.cat(parts).cpu().numpy()


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
