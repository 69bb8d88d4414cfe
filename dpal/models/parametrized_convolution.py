"""Convolutions whose filter is computed from their parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class FilterConv2d(nn.Module):
    """A 2d convolution with zero padding and a filter that `filters` makes.

    Whoever computes per-record gradients pulls those of the filter back through `filters`.
    """

    def __init__(self, *, stride: int = 1, padding: int = 0, groups: int = 1) -> None:
        super().__init__()
        self.stride, self.padding, self.groups = stride, padding, groups

    @abstractmethod
    def filters(self, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Computes filter and bias, differentiably, and from nothing else that changes.

        Args:
          parameters: the module's own, by name.

        Returns:
          Filter (out, channels / groups, height, width), and bias (out,) or None.
        """

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps (n, channels, height, width) to (n, out, height', width')."""
        weight, bias = self.filters(dict(self.named_parameters(recurse=False)))
        return F.conv2d(
            inputs, weight, bias, stride=self.stride, padding=self.padding, groups=self.groups
        )
