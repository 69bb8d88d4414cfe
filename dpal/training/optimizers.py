"""Optimizers, and their state as named tensors that any phase can take up again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dpal.planning.training_recipe import OPTIMIZERS as OPTIMIZERS
from dpal.planning.training_recipe import OptimizerSpec

_LEAST_NORM = 1e-3  # of a unit's weights: units that start at zero could not move otherwise


def build_optimizer(
    spec: OptimizerSpec, parameters: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """Builds an optimizer. It only processes noisy gradients, so nothing of it is private.

    Args:
      spec: its name and numbers.
      parameters: all of a model's, in its own order; frozen ones are left out.

    Returns:
      A torch optimizer, whose rate may be set anew before every step.
    """
    listed = list(parameters)
    trained = [parameter for parameter in listed if parameter.requires_grad]
    rate, decay = spec.learning_rate, spec.weight_decay
    if spec.name == "sgd_agc":
        return AgcSgd(
            trained,
            whole=_last_layer(listed),
            clipping=spec.agc_clipping,
            rate=rate,
            momentum=spec.momentum,
            weight_decay=decay,
        )
    if spec.name == "sgd":
        return torch.optim.SGD(trained, lr=rate, momentum=spec.momentum, weight_decay=decay)
    adaptive: dict[str, type[torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "nadam": torch.optim.NAdam,
    }
    settings: dict[str, Any] = {"lr": rate, "weight_decay": decay}
    return adaptive[spec.name](trained, **settings)


class AgcSgd(torch.optim.SGD):
    """SGD after adaptive gradient clipping: no unit moves far in comparison to its weights.

    It acts on the noisy mean gradient, after the privacy mechanism: clipping of records'
    gradients is another thing, and happens before.

    Source:
      Brock, De, Smith & Simonyan (2021), "High-performance large-scale image recognition
      without normalization", Sec. 4, eq. 3; the last layer is left out as in Sec. 4.1.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        whole: Sequence[nn.Parameter],
        clipping: float,
        rate: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        """Like torch's SGD.

        Args:
          parameters: what is trained.
          whole: parameters whose gradients stay as they are: the last layer's.
          clipping: largest norm of a unit's gradient over the norm of its weights.
          rate: step size.
          momentum: of the clipped gradients.
          weight_decay: added after clipping.
        """
        super().__init__(parameters, lr=rate, momentum=momentum, weight_decay=weight_decay)
        self._clipping, self._whole = clipping, {id(parameter) for parameter in whole}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Clips gradients in place, then makes SGD's step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and id(parameter) not in self._whole:
                    _clip_units(parameter.grad, parameter, self._clipping)
        loss: float | None = super().step(closure)
        return loss


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


def _clip_units(gradient: Tensor, weight: Tensor, clipping: float) -> None:
    """Scales the gradient of each unit, in place, down to `clipping` times its weights' norm."""
    largest = clipping * _unit_norms(weight).clamp(min=_LEAST_NORM)
    # A gradient of zero is kept: its ratio is infinite and bounded by one.
    gradient.mul_((largest / _unit_norms(gradient)).clamp(max=1.0))


def _unit_norms(values: Tensor) -> Tensor:
    """Norms over the fan-in of each output unit; of a bias or a gain, of all of it together."""
    fan_in = None if values.squeeze().dim() <= 1 else tuple(range(1, values.dim()))
    norms: Tensor = torch.linalg.vector_norm(values, dim=fan_in, keepdim=True)
    return norms


def _last_layer(parameters: Sequence[nn.Parameter]) -> Sequence[nn.Parameter]:
    """The last weight matrix and what follows it: the classifier, which comes last everywhere."""
    weights = [place for place, parameter in enumerate(parameters) if parameter.dim() > 1]
    return parameters[weights[-1] :] if weights else []
