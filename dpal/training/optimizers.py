"""Optimizers, and their state as named tensors that any phase can take up again."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from dpal import check
from dpal.planning.spec import OptimizerSpec

_ADAPTIVE: dict[str, type[torch.optim.Adam] | type[torch.optim.NAdam]] = {
    "adam": torch.optim.Adam,
    "nadam": torch.optim.NAdam,
}
OPTIMIZERS = ("sgd", *_ADAPTIVE)


def build_optimizer(
    spec: OptimizerSpec, parameters: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """Builds an optimizer. It only processes noisy gradients, so nothing of it is private.

    Raises:
      ParameterError: the name is unknown.
    """
    check.one_of(OPTIMIZERS, **{"training.optimizer": spec.name})
    if spec.name == "sgd":
        return torch.optim.SGD(parameters, lr=spec.learning_rate, momentum=spec.momentum)
    return _ADAPTIVE[spec.name](parameters, lr=spec.learning_rate)


def state_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Returns the optimizer's state as tensors named "<parameter number>.<key>"."""
    return {
        f"{number}.{key}": value.detach().clone().contiguous()
        for number, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def restore_state(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Puts back what `state_tensors` took out."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
