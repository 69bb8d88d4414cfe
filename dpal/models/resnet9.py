"""ResNet-9 with scale normalisation, for small images."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from dpal.models.layers import dropout, image_shape
from dpal.models.spec import ModelSpec

_GROUPS = 32


class ResNet9(nn.Module):
    """Eight convolutions and a classifier; each residual sum is normalised again.

    2,448,714 parameters with 3 channels and 10 classes. Takes (n, channels, height, width)
    with sides of at least 16, gives logits (n, classes). With `spec.dropout`, units are
    dropped after the four convolutions outside of residual blocks.

    Source: Klause, Ziller, Rueckert, Hammernik & Kaissis (2022), "Differentially private
    training of residual networks with scale normalisation", Sec. 3; widths and dropout of
    Schwethelm et al. (2025).
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        channels, _, _ = image_shape(spec, smallest=16)
        self.conv1 = _block(channels, 64, chance=spec.dropout)
        self.conv2 = _block(64, 128, pool=True, chance=spec.dropout)
        self.residual1 = nn.Sequential(_block(128, 128), _block(128, 128))
        self.scale_norm1 = nn.GroupNorm(_GROUPS, 128)
        self.conv3 = _block(128, 256, pool=True, chance=spec.dropout)
        self.conv4 = _block(256, 256, pool=True, chance=spec.dropout)
        self.residual2 = nn.Sequential(_block(256, 256), _block(256, 256))
        self.scale_norm2 = nn.GroupNorm(_GROUPS, 256)
        self.pool = nn.AdaptiveMaxPool2d(2)
        self.classify = nn.Linear(4 * 256, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns logits, shape (n, classes)."""
        low = self.conv2(self.conv1(inputs))
        low = self.scale_norm1(low + self.residual1(low))
        high = self.conv4(self.conv3(low))
        high = self.scale_norm2(high + self.residual2(high))
        logits: Tensor = self.classify(self.pool(high).flatten(1))
        return logits


def _block(wide_in: int, wide_out: int, *, pool: bool = False, chance: float = 0.0) -> nn.Module:
    """Convolution, normalisation and activation, then what was asked for."""
    parts: dict[str, nn.Module] = {
        "conv": nn.Conv2d(wide_in, wide_out, kernel_size=3, padding=1, bias=False),
        "norm": nn.GroupNorm(_GROUPS, wide_out),
        "activation": nn.Mish(),
    }
    if pool:
        parts["pool"] = nn.MaxPool2d(2)
    if chance:
        parts["dropout"] = dropout(chance)
    return nn.Sequential(OrderedDict(parts))
