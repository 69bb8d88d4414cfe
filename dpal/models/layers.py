"""Layers that several architectures share. Each treats every record on its own."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpal.errors import ParameterError
from dpal.models.parametrized_convolution import FilterConv2d
from dpal.models.spec import ModelSpec


class StandardisedConv2d(FilterConv2d):
    """Convolution whose filters have mean 0 and a fixed norm, whatever its weights.

    A filter is w - mean(w), over the root of the sum of its squares, times a gain: the
    standard deviation over the fan-in is gain / sqrt(fan_in), which keeps the variance of
    a signal of independent inputs. Every output channel has a filter and a gain.

    Attributes:
      weight: (out_channels, in_channels / groups, kernel, kernel), before standardising.
      gain: (out_channels,), or None for 1.
      bias: (out_channels,), or None for 0.

    Source:
      Qiao, Wang, Liu, Shen & Yuille (2019), "Weight standardization", Sec. 2; scaled by
      the fan-in and with a gain: Brock, De & Smith (2021), "Characterizing signal
      propagation to close the performance gap in unnormalized ResNets", Sec. 4.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = True,
        gain: bool = True,
        eps: float = 1e-4,
    ) -> None:
        """Makes a layer with weights of the global generator.

        Args:
          in_channels: of the inputs.
          out_channels: of the outputs.
          kernel_size: side of a filter.
          stride: between two outputs.
          padding: zeros around the inputs.
          groups: of channels that do not see each other.
          bias: whether there is one.
          gain: whether there is a learned one.
          eps: least sum of squares that a filter is divided by the root of.
        """
        super().__init__(stride=stride, padding=padding, groups=groups)
        self.eps = eps
        shape = (out_channels, in_channels // groups, kernel_size, kernel_size)
        self.weight = nn.Parameter(torch.empty(shape))
        self.register_parameter("gain", nn.Parameter(torch.ones(out_channels)) if gain else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(out_channels)) if bias else None)
        self.draw_weights(None)

    def draw_weights(self, generator: torch.Generator | None) -> None:
        """Draws fresh weights; gain and bias begin at 1 and 0.

        Their size moves no output, but a gradient is inversely proportional to it.
        """
        fan_in = math.prod(self.weight.shape[1:])
        nn.init.normal_(self.weight, std=1 / math.sqrt(fan_in), generator=generator)

    def filters(self, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """See `FilterConv2d`."""
        weight, gain = parameters["weight"], parameters.get("gain")
        centred = weight - weight.mean((1, 2, 3), keepdim=True)
        squares = centred.square().sum((1, 2, 3), keepdim=True)
        unit = centred * squares.clamp(min=self.eps).rsqrt()
        return unit if gain is None else unit * gain.view(-1, 1, 1, 1), parameters.get("bias")


class ScalarGain(nn.Module):
    """One learned number that a signal is multiplied by.

    Source: SkipInit, De & Smith (2020), "Batch normalization biases residual blocks
    towards the identity function in deep networks", Sec. 4.
    """

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(start))

    def forward(self, inputs: Tensor) -> Tensor:
        """Takes and gives any shape."""
        return inputs * self.gain


class ScaledGelu(nn.Module):
    """GELU (tanh form), scaled so that a standard normal input gives variance 1.

    Source: Brock, De, Smith & Simonyan (2021), Sec. 2; the constant is that of the weights
    published with it.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Takes and gives any shape."""
        return functional.gelu(inputs, approximate="tanh") * 1.7015043497085571


class SamePad2d(nn.Module):
    """Zeros such that a kernel at a stride gives ceil(side / stride) outputs.

    Where the zeros on two sides cannot be equal, the right and the bottom get one more, as
    where the published NFNet weights come from.
    """

    def __init__(self, kernel_size: int, stride: int) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride

    def forward(self, inputs: Tensor) -> Tensor:
        """Takes (n, channels, height, width), gives the same with zeros around."""
        height, width = (self._zeros(side) for side in inputs.shape[-2:])
        around = (width // 2, width - width // 2, height // 2, height - height // 2)
        return functional.pad(inputs, around)

    def _zeros(self, side: int) -> int:
        outputs = -(-side // self.stride)
        return max((outputs - 1) * self.stride + self.kernel_size - side, 0)


def dropout(chance: float) -> nn.Module:
    """Dropout in training mode, or nothing at all where the chance is 0."""
    return nn.Dropout(chance) if chance else nn.Identity()


def image_shape(spec: ModelSpec, *, smallest: int) -> tuple[int, int, int]:
    """Channels, height and width of a record.

    Raises:
      ParameterError: the records are no images, or too small ones.
    """
    if len(spec.input_shape) != 3 or min(spec.input_shape[1:]) < smallest:
        raise ParameterError(
            f"{spec.name} takes images of at least {smallest}x{smallest}, the data has records of "
            f"shape {spec.input_shape}; use model.name logistic or mlp"
        )
    channels, height, width = spec.input_shape
    return channels, height, width
