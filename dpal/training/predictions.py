"""What a model says of records: probabilities, and those at its temperature."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal.data.readers import to_input
from dpal.labels import Task
from dpal.training.losses import probabilities_of
from dpal.training.physical_batches import chunks

Probabilities = NDArray[np.float64]

_TINY = 1e-12


def probabilities(
    model: nn.Module, inputs: Tensor, *, physical_batch: int, task: Task = Task.SINGLE_LABEL
) -> Probabilities:
    """Probabilities of classes or labels, shape (n, classes).

    Args:
      model: from records to logits.
      inputs: (n, *input_shape) decoded records.
      physical_batch: records per forward pass.
      task: what a label is, and so what logits mean.
    """
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        parts = [
            model(to_input(chunk.to(device)))[: rows.stop - rows.start]
            for rows, chunk in chunks(inputs, physical_batch=physical_batch)
        ]
        return probabilities_of(task)(torch.cat(parts).double()).cpu().numpy()


def at_temperature(task: Task, probabilities: Probabilities, temperature: float) -> Probabilities:
    """Probabilities (n, classes) of logits that are divided by a temperature."""
    # By torch, not by scipy: a model that is served brings no package for this alone.
    if task is Task.SINGLE_LABEL:
        logits = np.log(np.clip(probabilities, _TINY, 1))
        return torch.softmax(torch.from_numpy(logits / temperature), dim=1).numpy()
    chances = torch.from_numpy(np.clip(probabilities, _TINY, 1 - _TINY))
    return torch.sigmoid(torch.logit(chances) / temperature).numpy()
