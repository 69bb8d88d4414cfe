"""ResNet-50 with group normalisation."""

from __future__ import annotations

from torch import Tensor, nn

from dpal.models.layers import dropout, image_shape
from dpal.models.spec import ModelSpec

_GROUPS = 32
_DEPTHS = (3, 4, 6, 3)
_EXPANSION = 4
SMALL_SIDE = 64  # images up to here are not shrunk by the stem


class ResNet50(nn.Module):
    """Bottleneck blocks with the stride in the middle convolution.

    25,557,032 parameters with 3 channels, 1000 classes and images above 64x64. Takes
    (n, channels, height, width) with sides of at least 16, gives logits (n, classes). Small
    images meet a 3x3 stem without stride or pooling. With `spec.dropout`, units are dropped
    before the classifier.

    Source: He, Zhang, Ren & Sun (2016), "Deep residual learning for image recognition",
    Table 1; group instead of batch normalisation: Wu & He (2018).
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        channels, height, width = image_shape(spec, smallest=16)
        self.stem = stem(channels, small=max(height, width) <= SMALL_SIDE)
        blocks: list[nn.Module] = []
        wide_in = 64
        for stage, depth in enumerate(_DEPTHS):
            for block in range(depth):
                stride = 2 if stage and not block else 1
                blocks.append(_Bottleneck(wide_in, 64 * 2**stage, stride=stride))
                wide_in = _EXPANSION * 64 * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.dropout = dropout(spec.dropout)
        self.classify = nn.Linear(wide_in, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns logits, shape (n, classes)."""
        pooled = self.blocks(self.stem(inputs)).mean((2, 3))
        logits: Tensor = self.classify(self.dropout(pooled))
        return logits


def stem(channels: int, *, small: bool) -> nn.Sequential:
    """First convolution, to 64 channels, as ResNet-50 and DenseNet-121 have it."""
    kernel, stride, padding = (3, 1, 1) if small else (7, 2, 3)
    conv = nn.Conv2d(channels, 64, kernel, stride=stride, padding=padding, bias=False)
    shrink = [] if small else [nn.MaxPool2d(3, stride=2, padding=1)]
    return nn.Sequential(conv, nn.GroupNorm(_GROUPS, 64), nn.ReLU(), *shrink)


class _Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside the identity, or beside a 1x1 convolution."""

    def __init__(self, wide_in: int, narrow: int, *, stride: int) -> None:
        super().__init__()
        wide_out = _EXPANSION * narrow
        self.residual = nn.Sequential(
            *_convolution(wide_in, narrow, kernel=1),
            nn.ReLU(),
            *_convolution(narrow, narrow, kernel=3, stride=stride),
            nn.ReLU(),
            *_convolution(narrow, wide_out, kernel=1),
        )
        projects = stride > 1 or wide_in != wide_out
        self.skip = nn.Sequential(
            *(_convolution(wide_in, wide_out, kernel=1, stride=stride) if projects else ())
        )
        self.activation = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        signal: Tensor = self.activation(self.residual(inputs) + self.skip(inputs))
        return signal


def _convolution(wide_in: int, wide_out: int, *, kernel: int, stride: int = 1) -> list[nn.Module]:
    """Convolution and normalisation."""
    conv = nn.Conv2d(wide_in, wide_out, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [conv, nn.GroupNorm(_GROUPS, wide_out)]
