"""The rule for convolutions whose filter is a function of the layer's parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dpal.models.parametrized_convolution import FilterConv2d
from dpal.training.per_record.convolution import ConvolutionRule
from dpal.training.per_record.layer_rule import (
    INSTANTIATE,
    KEEP,
)
from dpal.training.per_record.norms_and_sums import (
    PerRecord,
    SquaredNorms,
    at_once,
    rounding_room,
    squared,
)
from dpal.training.per_record.patches import Geometry

_ROUNDS = 4  # of power iteration
_LEAST = 1e-18  # whose square float32 has


class FilterRule(ConvolutionRule):
    """Weight-standardised and steerable convolutions.

    A record's gradient of the filter is pulled back to the parameters before it is
    measured: the map between them need not keep lengths. Sums are pulled back as sums.
    """

    def __init__(self, layer: FilterConv2d) -> None:
        with torch.no_grad():
            filters, bias = layer.filters(dict(layer.named_parameters(recurse=False)))
        sides = layer.padding
        geometry = Geometry(
            kernel=(filters.shape[2], filters.shape[3]),
            stride=(layer.stride, layer.stride),
            dilation=(1, 1),
            padding=(sides, sides, sides, sides),
            mode="constant",
            groups=layer.groups,
        )
        super().__init__(layer, geometry, filters.shape)
        self._layer = layer
        self._wanted = ("weight", "bias") if bias is not None else ("weight",)
        # Public: no record and no noise comes of it.
        self._probe = torch.randn(filters.shape, generator=torch.Generator().manual_seed(0))

    def per_record(self, inputs: Tensor, grads: Tensor, records: int) -> PerRecord:
        """See `Rule`."""
        return self._pull_back(super().per_record(inputs, grads, records))

    def weighted(self, inputs: Tensor, grads: Tensor, weights: Tensor) -> PerRecord:
        """See `Rule`."""
        sums = super().weighted(inputs, grads, weights)
        pulled = self._pull_back({name: value[None] for name, value in sums.items()})
        return {name: value[0] for name, value in pulled.items()}

    def ways(self, inputs: Tensor, grads: Tensor, records: int) -> tuple[str, ...]:
        """See `Rule`: filters must be known one by one to be pulled back."""
        ways = super().ways(inputs, grads, records)
        return (KEEP,) if KEEP in ways else (INSTANTIATE,)

    def squared_norms(
        self, inputs: Tensor, grads: Tensor, records: int, *, way: str
    ) -> SquaredNorms:
        """See `Rule`."""
        copies = len(inputs) // records
        many = copies * at_once(inputs, self._shape.numel())
        parts = [
            squared(self.per_record(a, b, len(a) // copies))
            for a, b in zip(torch.split(inputs, many), torch.split(grads, many), strict=True)
        ]
        # What the map takes off, such as a filter's mean, may be all there is but for rounding,
        # which is another one when sums are pulled back.
        taps = self._geometry.kernel[0] * self._geometry.kernel[1]
        room = rounding_room(inputs, grads, records, precision=self.precision, taps=taps)
        return SquaredNorms(torch.cat(parts), room * self._stretch())

    def _stretch(self) -> Tensor:
        """Square of the most by which pulling back lengthens a filter's gradient, nearly; a scalar.

        By power iteration, which comes close from below; rounding has no direction. Nothing of it
        is read before the norms are, so that a GPU need not wait.
        """
        own = {name: value.detach() for name, value in self._layer.named_parameters(recurse=False)}
        if self._probe.device != own["weight"].device:
            self._probe = self._probe.to(own["weight"].device)
        there = torch.func.vjp(lambda some: self._layer.filters(some)[0], own)
        transpose, filters = there[1], self._probe.to(there[0].dtype)
        longest: Tensor = filters.new_zeros(())
        for _ in range(_ROUNDS):
            # What pulls back is linear, so that its own transpose leads to filters again.
            found = torch.func.vjp(lambda some: transpose(some)[0], filters)
            pulled, push = found[0], found[1]
            length = squared({name: value[None] for name, value in pulled.items()})[0]
            size = filters.norm().clamp(min=_LEAST)  # a map to nothing ends at nothing
            longest = torch.maximum(longest, length / size**2)
            filters = push(pulled)[0] / size
        return longest

    def _pull_back(self, gradients: Mapping[str, Tensor]) -> PerRecord:
        """From gradients (m, ...) of filter and bias to those of the parameters, (m, ...)."""
        own = {name: value.detach() for name, value in self._layer.named_parameters(recurse=False)}
        kind = own["weight"].dtype  # gradients are float32, whatever the model is
        given = gradients.get("bias")
        cotangents = (gradients["weight"].to(kind), None if given is None else given.to(kind))

        def pull(weight: Tensor, bias: Tensor | None) -> dict[str, Tensor]:
            result: dict[str, Tensor] = transpose((weight, bias) if bias is not None else weight)[0]
            return result

        def maps(parameters: dict[str, Tensor]) -> Tensor | tuple[Tensor, Tensor]:
            filters, bias = self._layer.filters(parameters)
            return filters if bias is None else (filters, bias)

        transpose = torch.func.vjp(maps, own)[1]
        axes = (0, None if cotangents[1] is None else 0)
        pulled: dict[str, Tensor] = torch.func.vmap(pull, in_dims=axes)(*cotangents)
        return {name: pulled[name].float() for name in self.parameters}
