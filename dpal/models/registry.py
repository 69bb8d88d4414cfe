"""Builds the models that a campaign may name."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from dpal import check
from dpal.models.small import TutorialCnn, logistic, mlp
from dpal.models.spec import ModelSpec
from dpal.randomness import seeded

MODELS: dict[str, Callable[[ModelSpec], nn.Module]] = {
    "logistic": logistic,
    "mlp": mlp,
    "tutorial_cnn": TutorialCnn,
}


def build_model(spec: ModelSpec) -> nn.Module:
    """Builds a model with repeatable, public initial weights.

    Args:
      spec: a registered name and its shapes.

    Returns:
      A module from (n, *input_shape) to logits (n, classes), in training mode, whose
      every record is treated apart from the others.

    Raises:
      ParameterError: the name is unknown, or the architecture does not take such records.
    """
    check.one_of(MODELS, **{"model.name": spec.name})
    model = MODELS[spec.name](spec)
    draw = seeded(spec.seed, f"weights of {spec.name}")
    generator = torch.Generator().manual_seed(int(draw.integers(2**63)))
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                # torch's own defaults, from a generator of our own.
                nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
                if layer.bias is not None:
                    bound = 1 / math.sqrt(layer.weight[0].numel())
                    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return model
