"""A convolution whose filter turns with the image."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dpal.models.equivariant.basis import steerable_basis
from dpal.models.equivariant.groups import PointGroup
from dpal.models.parametrized_convolution import FilterConv2d


class SteerableConv2d(FilterConv2d):
    """Maps fields to regular fields and commutes with turns and flips of the image.

    A plain convolution, stride 1 and padded to keep the size, whose filter is a linear
    map of few coefficients. The map keeps norms, so that a gradient step on the
    coefficients is a step on the filter, projected onto the filters allowed. The bias is
    one number for each field.

    Attributes:
      weight: coefficients, (fields_out, fields_in, coefficients).
      bias: (fields_out,), or None.
    """

    basis: Tensor
    bias: nn.Parameter | None

    def __init__(
        self,
        fields_in: int,
        fields_out: int,
        *,
        group: PointGroup,
        kernel_size: int = 3,
        from_regular: bool = True,
        bias: bool = True,
    ) -> None:
        """Makes a layer with coefficients of the global generator.

        Args:
          fields_in: regular fields of the input, or plain channels.
          fields_out: regular fields of the output.
          group: turns and flips to commute with.
          kernel_size: odd side of the filter.
          from_regular: whether the input's fields are regular or plain channels.
          bias: whether each output field has one.

        Raises:
          ParameterError: the side is even.
        """
        super().__init__(padding=kernel_size // 2)
        basis = steerable_basis(group, kernel_size, from_regular=from_regular)
        # Computed, not learned: not part of what is saved.
        self.register_buffer(
            "basis", torch.tensor(basis, dtype=torch.get_default_dtype()), persistent=False
        )
        self.weight = nn.Parameter(torch.empty(fields_out, fields_in, len(basis)))
        self.register_parameter("bias", nn.Parameter(torch.empty(fields_out)) if bias else None)
        self.draw_weights(None)

    def draw_weights(self, generator: torch.Generator | None) -> None:
        """Draws fresh coefficients; a bias begins at 0.

        The entries of the filter get variance 1/fan_in. Source: Weiler, Hamprecht & Storath
        (2018), "Learning steerable filters for rotation equivariant CNNs", in the norm of
        this basis.
        """
        _, fields_in, coefficients = self.weight.shape
        order = self.basis.shape[1]
        deviation = math.sqrt(order / (fields_in * coefficients))
        nn.init.normal_(self.weight, std=deviation, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def filters(self, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """See `FilterConv2d`."""
        weight, bias = parameters["weight"], parameters.get("bias")
        fields_out, fields_in, coefficients = weight.shape
        _, order, channels, height, width = self.basis.shape
        pairs = weight.flatten(0, 1) @ self.basis.view(coefficients, -1)
        apart = pairs.view(fields_out, fields_in, order, channels, height, width)
        expanded = apart.transpose(1, 2).reshape(
            fields_out * order, fields_in * channels, height, width
        )
        return expanded, None if bias is None else bias.repeat_interleave(order)
