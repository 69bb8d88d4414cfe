"""Pretraining on public images alone: which of four ways is this picture turned?

Source: Gidaris, Singh & Komodakis (2018), "Unsupervised representation learning by predicting
image rotations".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.public_selection import FineTuning
from dpal.training.embeddings import last_layer
from dpal.training.plain_training import OnStep, fine_tune

TURNS = 4


def rotate_four_ways(images: Tensor) -> tuple[Tensor, Tensor]:
    """Every image in its four directions, and which one it is.

    Args:
      images: (n, channels, side, side).

    Returns:
      (4 n, channels, side, side) and (4 n,) numbers of quarter turns.

    Raises:
      ParameterError: these are no square images, which alone look alike when turned.
    """
    if images.dim() != 4 or images.shape[2] != images.shape[3]:
        raise ParameterError(
            f"rotations need square images, and records of shape {tuple(images.shape[1:])} are "
            "none; leave start.rotations out"
        )
    # By NumPy: torch turns no pixels of 16 bits.
    turned = (np.rot90(images.numpy(), turns, axes=(2, 3)) for turns in range(TURNS))
    parts = [torch.from_numpy(np.ascontiguousarray(part)) for part in turned]
    labels = torch.arange(TURNS).repeat_interleave(len(images))
    return torch.cat(parts), labels


def pretrain(
    spec: ModelSpec, images: Tensor, training: FineTuning, *, on_step: OnStep = lambda: None
) -> nn.Module:
    """Trains a model of this architecture to tell turns, then gives it a fresh last layer.

    Args:
      spec: what the weights are for.
      images: (n, channels, side, side) decoded public images.
      training: how long and how fast.
      on_step: called after every step.

    Returns:
      A model of `spec` whose last layer is as fresh as if it were built anew.

    Raises:
      ParameterError: records are no square images, or the model has no last linear layer.
    """
    inputs, turns = rotate_four_ways(images)
    teller = build_model(replace(spec, classes=TURNS, task=Task.SINGLE_LABEL))
    fine_tune(teller, inputs, turns, training, task=Task.SINGLE_LABEL, on_step=on_step)
    fresh = build_model(spec)
    ends = (last_layer(teller, classes=TURNS), last_layer(fresh, classes=spec.classes))
    names = [
        {f"{name}.{key}" for key in ("weight", "bias")}
        for model, end in zip((teller, fresh), ends, strict=True)
        for name, module in model.named_modules()
        if module is end
    ]
    learned = {key: value for key, value in teller.state_dict().items() if key not in names[0]}
    kept = {key: value for key, value in fresh.state_dict().items() if key in names[1]}
    fresh.load_state_dict({**learned, **kept})
    return fresh
