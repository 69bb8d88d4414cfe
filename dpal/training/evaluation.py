"""Predictions of a released model: post-processing, free of charge."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal.data.readers import to_input
from dpal.training.chunks import chunks


def probabilities(model: nn.Module, inputs: Tensor, *, physical_batch: int) -> NDArray[np.float64]:
    """Class probabilities, shape (n, classes).

    Args:
      model: from records to logits.
      inputs: (n, *input_shape) decoded records.
      physical_batch: records per forward pass.
    """
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        parts = [
            torch.softmax(model(to_input(chunk.to(device))).double(), dim=1)[
                : rows.stop - rows.start
            ]
            for rows, chunk in chunks(inputs, physical_batch=physical_batch)
        ]
    return torch.cat(parts).cpu().numpy()


def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor, *, physical_batch: int) -> float:
    """Share of records whose most probable class is their label."""
    predicted = probabilities(model, inputs, physical_batch=physical_batch).argmax(axis=1)
    return float((predicted == labels.numpy()).mean())
