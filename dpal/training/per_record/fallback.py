"""The rule for layers that no other rule knows: torch.func on the layer alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpal.errors import ParameterError
from dpal.training.per_record.layer_rule import (
    Rule,
)
from dpal.training.per_record.norms_and_sums import (
    PerRecord,
)


class _Unwatched(nn.Module):
    """Runs a module without the hooks that watch it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        """Calls the module's own forward."""
        outputs: Tensor = self.inner.forward(inputs)
        return outputs


class FunctionalRule(Rule):
    """Any module with parameters, as one function of one record's input.

    The module and all it contains is run a second time, so what it does may not depend on
    chance: dropout inside of it is refused.
    """

    def __init__(self, layer: nn.Module, name: str) -> None:
        super().__init__(layer)
        self.parameters = tuple(key for key, p in layer.named_parameters() if p.requires_grad)
        for inner, part in layer.named_modules():
            chance = getattr(part, "p", getattr(part, "dropout", 0.0))
            if layer.training and isinstance(chance, float) and chance > 0:
                raise ParameterError(
                    f"layer {name!r} ({type(layer).__name__}) has no rule of its own and holds "
                    f"dropout ({inner or name}); set its dropout to 0, build it from linear "
                    "layers, or use runtime.backend functional"
                )

    def per_record(self, inputs: Tensor, grads: Tensor, records: int) -> PerRecord:
        """See `Rule`."""
        module = _Unwatched(self.layer)
        own = {key: value.detach() for key, value in module.named_parameters()}
        training = {key: own[key] for key in (f"inner.{name}" for name in self.parameters)}
        frozen = {key: value for key, value in own.items() if key not in training}

        def gradient(record: Tensor, back: Tensor) -> dict[str, Tensor]:
            def run(parameters: dict[str, Tensor]) -> Tensor:
                outputs = torch.func.functional_call(
                    module, {**frozen, **parameters}, (record[None],)
                )
                result: Tensor = outputs[0]
                return result

            transpose = torch.func.vjp(run, training)[1]
            pulled: dict[str, Tensor] = transpose(back)[0]
            return pulled

        each = torch.func.vmap(gradient)(inputs, grads)
        return {
            key.removeprefix("inner."): value.reshape(records, -1, *own[key].shape).sum(dim=1)
            for key, value in each.items()
        }

    def weighted(self, inputs: Tensor, grads: Tensor, weights: Tensor) -> PerRecord:
        """See `Rule`."""
        gradients = self.per_record(inputs, grads, len(weights))
        return {key: torch.tensordot(weights, value, 1) for key, value in gradients.items()}
