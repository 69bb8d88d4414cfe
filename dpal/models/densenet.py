"""DenseNet-121 with group normalisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpal.models.layers import dropout, image_shape
from dpal.models.resnet50 import SMALL_SIDE, stem
from dpal.models.spec import ModelSpec

_GROUPS = 32
_DEPTHS = (6, 12, 24, 16)
_GROWTH = 32
_BOTTLENECK = 4


class DenseNet121(nn.Module):
    """Every layer sees the outputs of all layers before it in its block.

    7,978,856 parameters with 3 channels, 1000 classes and images above 64x64. Takes
    (n, channels, height, width) with sides of at least 16, gives logits (n, classes). Small
    images meet a 3x3 stem without stride or pooling. With `spec.dropout`, units are dropped
    before the classifier.

    Source: Huang, Liu, van der Maaten & Weinberger (2017), "Densely connected convolutional
    networks", Table 1; group instead of batch normalisation: Wu & He (2018).
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        channels, height, width = image_shape(spec, smallest=16)
        self.stem = stem(channels, small=max(height, width) <= SMALL_SIDE)
        parts: list[nn.Module] = []
        wide = 64
        for index, depth in enumerate(_DEPTHS):
            if index:
                parts += [*_convolution(wide, wide // 2, kernel=1), nn.AvgPool2d(2)]
                wide //= 2
            for _ in range(depth):
                parts.append(_DenseLayer(wide))
                wide += _GROWTH
        self.blocks = nn.Sequential(*parts, nn.GroupNorm(_GROUPS, wide), nn.ReLU())
        self.dropout = dropout(spec.dropout)
        self.classify = nn.Linear(wide, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns logits, shape (n, classes)."""
        pooled = self.blocks(self.stem(inputs)).mean((2, 3))
        logits: Tensor = self.classify(self.dropout(pooled))
        return logits


class _DenseLayer(nn.Module):
    """Adds 32 channels to those it sees."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        narrow = _BOTTLENECK * _GROWTH
        self.grow = nn.Sequential(
            *_convolution(wide, narrow, kernel=1), *_convolution(narrow, _GROWTH, kernel=3)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs, self.grow(inputs)], dim=1)


def _convolution(wide_in: int, wide_out: int, *, kernel: int) -> list[nn.Module]:
    """Normalisation, activation and convolution."""
    conv = nn.Conv2d(wide_in, wide_out, kernel, padding=kernel // 2, bias=False)
    return [nn.GroupNorm(_GROUPS, wide_in), nn.ReLU(), conv]
