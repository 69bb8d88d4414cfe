"""What a step has left in a model's parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def gradient_of(parameter: Tensor) -> Tensor:
    """The gradient, which must be there."""
    assert parameter.grad is not None
    return parameter.grad


def flat_gradient(model: nn.Module) -> Tensor:
    """Gradients of all parameters in their order: (parameters,)."""
    return torch.cat([gradient_of(one).flatten() for one in model.parameters()])
