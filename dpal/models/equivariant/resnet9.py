"""The ResNet-9 whose features turn and flip with the image."""

from __future__ import annotations

import math

from torch import Tensor, nn

from dpal.models.equivariant.convolution import SteerableConv2d
from dpal.models.equivariant.groups import D2, D4, PointGroup
from dpal.models.layers import dropout, image_shape
from dpal.models.spec import ModelSpec

_WIDTHS = (16, 32, 64)
_FIELDS_PER_NORM_GROUP = 8


class EquivariantResNet9(nn.Module):
    """ResNet-9 of steerable convolutions, D4 in its first half and D2 in its second.

    255,675 parameters on 3x32x32 inputs and 10 classes. Takes (n, channels, height,
    width) with sides of at least 16, gives logits (n, classes). Up to the halving of the
    group the features commute with all eight turns and flips, after it with the half turn
    and the two flips; exactly so where the sides are multiples of 8 (and equal, for the
    quarter turns), as pooling drops the last row of an odd side. The classifier reads the
    four quarters of the image apart, so a flip may still change the logits.

    Source: Schwethelm et al. (2025), "Differentially private active learning", after
    Hölzl, Rueckert & Kaissis (2023), "Equivariant differentially private deep learning:
    why DP-SGD needs sparser models"; fields, frequency cut-off and order of layers as in
    the code of the former.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        image, _, _ = image_shape(spec, smallest=16)
        narrow, middle = (_fields(width, D4.order) for width in _WIDTHS[:2])
        # The published widths count the last D4 layer with the order of D2 already.
        wide = _fields(_WIDTHS[2], D2.order)
        self.first = _Block(image, narrow, D4, from_regular=False)
        self.second = _Block(narrow, middle, D4, pool=True)
        self.first_residual = _Residual(middle, D4)
        self.third = _Block(middle, wide, D4, pool=True)
        # Each field of D4 is two fields of D2 from here on.
        self.fourth = _Block(2 * wide, wide, D2, pool=True)
        self.second_residual = _Residual(wide, D2)
        self.group_pool = GroupMaxPool(D2)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.dropout = dropout(spec.dropout)
        self.classify = nn.Linear(4 * wide, spec.classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Returns (n, fields, height/8, width/8), which flip with the image."""
        low: Tensor = self.first_residual(self.second(self.first(inputs)))
        high: Tensor = self.second_residual(self.fourth(self.third(low)))
        pooled: Tensor = self.group_pool(high)
        return pooled

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns logits, shape (n, classes)."""
        quarters = self.pool(self.features(inputs)).flatten(1)
        logits: Tensor = self.classify(self.dropout(quarters))
        return logits


class GroupMaxPool(nn.Module):
    """The largest value of each regular field: (n, fields * order, ...) to (n, fields, ...)."""

    def __init__(self, group: PointGroup) -> None:
        super().__init__()
        self.order = group.order

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns what no turn of the group changes, but for the pixels' places."""
        pixels = inputs.shape[2:]
        return inputs.reshape(len(inputs), -1, self.order, *pixels).amax(2)


class _Block(nn.Sequential):
    """Convolution, Mish, group norm without parameters, and max pooling if asked."""

    def __init__(
        self,
        fields_in: int,
        fields_out: int,
        group: PointGroup,
        *,
        pool: bool = False,
        from_regular: bool = True,
    ) -> None:
        super().__init__(
            SteerableConv2d(
                fields_in,
                fields_out,
                group=group,
                from_regular=from_regular,
            ),
            nn.Mish(),
            _norm(fields_out, group),
            *([nn.MaxPool2d(2)] if pool else []),
        )


class _Residual(nn.Module):
    """Two blocks around an identity, with a scale norm on the sum."""

    def __init__(self, fields: int, group: PointGroup) -> None:
        super().__init__()
        self.blocks = nn.Sequential(_Block(fields, fields, group), _Block(fields, fields, group))
        self.scale_norm = _norm(fields, group)

    def forward(self, inputs: Tensor) -> Tensor:
        """Keeps the shape."""
        normed: Tensor = self.scale_norm(inputs + self.blocks(inputs))
        return normed


def _fields(channels: int, order: int) -> int:
    """Regular fields of about as many parameters as a plain layer of such a width."""
    return math.floor(channels * math.sqrt(1.5 * order) / order)


def _norm(fields: int, group: PointGroup) -> nn.GroupNorm:
    """Normalises whole fields together, so that turning them changes nothing.

    As many groups as leave eight fields in each: 1, 1 and 3 for 6, 13 and 39 fields.
    """
    most = max(1, fields // _FIELDS_PER_NORM_GROUP)
    groups = next(count for count in range(most, 0, -1) if fields % count == 0)
    return nn.GroupNorm(groups, fields * group.order, affine=False)
