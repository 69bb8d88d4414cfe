"""Low-rank adapters: a linear layer that stays as it is, and a product of two small ones beside it.

Only the small ones train. A record's gradient of them is what the rule of linear layers makes of
their inputs and the gradients of their outputs, so that clipping needs none of the wide layer.

Source: Hu et al. (2022), "LoRA"; under DP-SGD: Yu et al. (2022), "Differentially Private
Fine-tuning of Language Models".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from dpal.errors import ParameterError


class AdaptedLinear(nn.Linear):
    """A linear layer plus `up(down(x))`, which is zero at first; parameters keep their names."""

    down: nn.Linear
    up: nn.Linear

    @classmethod
    def beside(cls, layer: nn.Linear, rank: int, generator: torch.Generator) -> Self:
        """The layer with an adapter; it takes the layer's own parameters.

        Args:
          layer: (n, inputs) to (n, outputs).
          rank: of the product, at most either of these.
          generator: of the first weights; public.

        Raises:
          ParameterError: the rank is larger than the layer is wide.
        """
        widest = min(layer.in_features, layer.out_features)
        if rank > widest:
            raise ParameterError(
                f"model.adapter_rank is {rank}, and a layer that it adapts is {widest} wide; set "
                "it to less"
            )
        sides = layer.in_features, layer.out_features
        made = cls(*sides, bias=layer.bias is not None, device="meta")
        made.weight, made.bias = layer.weight, layer.bias
        made.down = nn.Linear(layer.in_features, rank, bias=False)
        made.up = nn.Linear(rank, layer.out_features, bias=False)
        with torch.no_grad():
            nn.init.kaiming_uniform_(made.down.weight, a=math.sqrt(5), generator=generator)
            nn.init.zeros_(made.up.weight)
        return made

    def forward(self, inputs: Tensor) -> Tensor:
        """What the layer gives, and what the adapter adds."""
        adapted: Tensor = super().forward(inputs) + self.up(self.down(inputs))
        return adapted


def adapt(
    model: nn.Module,
    names: tuple[str, ...],
    stays: Callable[[str], bool],
    rank: int,
    generator: torch.Generator,
) -> tuple[str, ...]:
    """Puts adapters beside linear layers; returns the names of what trains of them.

    Args:
      model: changed in place.
      names: last parts of the layers' names, such as query.
      stays: whether the layer of a name does not train itself; others get no adapter.
      rank: of all adapters.
      generator: of their first weights; public.

    Raises:
      ParameterError: no layer has such a name, or the rank is too large.
    """
    layers = {name: layer for name, layer in model.named_modules()
              if type(layer) is nn.Linear and stays(name)}  # fmt: skip
    last = {name: name.rpartition(".")[2] for name in layers}
    for wanted in names:
        if wanted not in last.values():
            raise ParameterError(
                f"model.adapted_layers names {wanted!r}, which no linear layer is called; choose "
                f"of {', '.join(sorted(set(last.values())))}"
            )
    trained: list[str] = []
    for name, layer in layers.items():
        if last[name] in names:
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, last[name], AdaptedLinear.beside(layer, rank, generator))
            trained += [f"{name}.down", f"{name}.up"]
    return tuple(trained)
