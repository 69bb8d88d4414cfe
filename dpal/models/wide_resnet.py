"""Wide residual nets with group normalisation and standardised weights."""

from __future__ import annotations

from torch import Tensor, nn

from dpal.models.layers import StandardisedConv2d, dropout, image_shape
from dpal.models.spec import ModelSpec

_GROUPS = 16
_BLOCKS = 2  # in each of three stages, two convolutions each: depth 16 with stem and ends
_WIDENING = 4


class WideResNet16x4(nn.Module):
    """WRN-16-4 as it is trained under differential privacy.

    2,753,818 parameters with 3 channels and 10 classes. Takes (n, channels, height, width)
    with sides of at least 8, gives logits (n, classes). With `spec.dropout`, units are
    dropped before the classifier.

    Source: Zagoruyko & Komodakis (2016), "Wide residual networks"; normalisation: De,
    Berrada, Hayes, Smith & Balle (2022), "Unlocking high-accuracy differentially private
    image classification through scale", Sec. 3; order of activation and normalisation, and
    gains and biases of convolutions, as in the code published with it (jax_privacy).
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        channels, _, _ = image_shape(spec, smallest=8)
        self.stem = StandardisedConv2d(channels, 16, 3, padding=1)
        blocks: list[nn.Module] = []
        wide_in = 16
        for stage in range(3):
            wide_out = 16 * _WIDENING * 2**stage
            for block in range(_BLOCKS):
                stride = 2 if stage and not block else 1
                blocks.append(_Block(wide_in, wide_out, stride=stride, projects=not block))
                wide_in = wide_out
        self.blocks = nn.Sequential(*blocks)
        self.activation = nn.ReLU()
        self.norm = nn.GroupNorm(_GROUPS, wide_in)
        self.dropout = dropout(spec.dropout)
        self.classify = nn.Linear(wide_in, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns logits, shape (n, classes)."""
        signal = self.norm(self.activation(self.blocks(self.stem(inputs))))
        logits: Tensor = self.classify(self.dropout(signal.mean((2, 3))))
        return logits


class _Block(nn.Module):
    """Two convolutions beside the identity, or beside one more convolution."""

    def __init__(self, wide_in: int, wide_out: int, *, stride: int, projects: bool) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_convolution(wide_in, wide_out, kernel=3, stride=stride),
            *_convolution(wide_out, wide_out, kernel=3, stride=1),
        )
        self.skip = nn.Sequential(
            *(_convolution(wide_in, wide_out, kernel=1, stride=stride) if projects else ())
        )

    def forward(self, inputs: Tensor) -> Tensor:
        signal: Tensor = self.residual(inputs) + self.skip(inputs)
        return signal


def _convolution(wide_in: int, wide_out: int, *, kernel: int, stride: int) -> list[nn.Module]:
    """Activation, normalisation and convolution, in this order."""
    conv = StandardisedConv2d(wide_in, wide_out, kernel, stride=stride, padding=kernel // 2)
    return [nn.ReLU(), nn.GroupNorm(_GROUPS, wide_in), conv]
