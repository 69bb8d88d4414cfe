"""NFNet-F0: a residual net without normalisation of activations."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor, nn

from dpal.models.haiku_weights import read_haiku
from dpal.models.layers import (
    SamePad2d,
    ScalarGain,
    ScaledGelu,
    StandardisedConv2d,
    dropout,
    image_shape,
)
from dpal.models.spec import ModelSpec
from dpal.models.weights import put_weights, read_safetensors

_WIDTHS, _DEPTHS = (256, 512, 1536, 1536), (1, 2, 6, 3)
_GROUP_WIDTH = 128
_ALPHA = 0.2  # how much variance a block adds


class NFNet(nn.Module):
    """Blocks of standardised convolutions whose signal keeps a known variance.

    68,459,306 parameters with 3 channels and 14 classes. Takes (n, channels, height, width)
    with sides of at least 16, gives logits (n, classes). The published net was trained on
    192x192. With `spec.dropout`, units are dropped before the classifier; whole blocks
    (stochastic depth) are never dropped.

    The squeeze-excite gates consist of linear layers, so MC dropout drops inputs of theirs
    as it does the classifier's: every block is then uncertain, not the last layer alone.

    Source: Brock, De, Smith & Simonyan (2021), "High-performance large-scale image
    recognition without normalization", Sec. 4 and Table 1; details that the paper leaves
    open as in the code published with it (deepmind-research, nfnets).
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        widths: tuple[int, ...] = _WIDTHS,
        depths: tuple[int, ...] = _DEPTHS,
        group_width: int = _GROUP_WIDTH,
    ) -> None:
        """Makes the net; the defaults are F0.

        Args:
          spec: shape of the records, classes and dropout.
          widths: channels of each stage.
          depths: blocks of each stage.
          group_width: channels that see each other in a grouped convolution.
        """
        super().__init__()
        channels, _, _ = image_shape(spec, smallest=16)
        wide_in = widths[0] // 2
        self.stem = nn.Sequential(
            *(SamePad2d(3, 2), StandardisedConv2d(channels, 16, 3, stride=2), ScaledGelu()),
            *(StandardisedConv2d(16, 32, 3, padding=1), ScaledGelu()),
            *(StandardisedConv2d(32, 64, 3, padding=1), ScaledGelu()),
            *(SamePad2d(3, 2), StandardisedConv2d(64, wide_in, 3, stride=2)),
        )
        blocks: list[nn.Module] = []
        variance = 1.0  # of the signal at initialisation, were the skip gains 1
        for stage, (wide_out, depth) in enumerate(zip(widths, depths, strict=True)):
            for index in range(depth):
                stride = 2 if stage and not index else 1
                block = _Block(
                    wide_in, wide_out, stride=stride, beta=variance**-0.5, group_width=group_width
                )
                blocks.append(block)
                # A projection starts again from the normalised signal.
                variance = (1.0 if index == 0 else variance) + _ALPHA**2
                wide_in = wide_out
        self.blocks = nn.Sequential(*blocks)
        self.final = nn.Sequential(StandardisedConv2d(wide_in, 2 * wide_in, 1), ScaledGelu())
        self.dropout = dropout(spec.dropout)
        self.classify = nn.Linear(2 * wide_in, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns logits, shape (n, classes)."""
        pooled = self.final(self.blocks(self.stem(inputs))).mean((2, 3))
        logits: Tensor = self.classify(self.dropout(pooled))
        return logits

    def load_pretrained(self, path: Path) -> None:
        """Takes up public weights: safetensors of this net, or Haiku's names in an .npz.

        The classifier stays fresh where the file's is of another number of classes.

        Raises:
          DataError: the file is missing, unreadable, or of another net.
        """
        if path.suffix == ".safetensors":
            put_weights(self, read_safetensors(path), path)
            return
        put_weights(self, {_own(name): value for name, value in read_haiku(path).items()}, path)


class _Block(nn.Module):
    """A bottleneck with two grouped convolutions and a squeeze-excite gate."""

    def __init__(
        self, wide_in: int, wide_out: int, *, stride: int, beta: float, group_width: int
    ) -> None:
        super().__init__()
        groups = wide_out // 2 // group_width
        narrow = groups * group_width
        self.beta = beta  # brings the input's variance back to 1
        self.activation = ScaledGelu()
        self.conv0 = StandardisedConv2d(wide_in, narrow, 1)
        self.pad = SamePad2d(3, stride)
        self.conv1 = StandardisedConv2d(narrow, narrow, 3, stride=stride, groups=groups)
        self.conv1b = StandardisedConv2d(narrow, narrow, 3, padding=1, groups=groups)
        self.conv2 = StandardisedConv2d(narrow, wide_out, 1)
        self.shrink = nn.AvgPool2d(stride, ceil_mode=True)  # of what is there
        projects = stride > 1 or wide_in != wide_out
        self.conv_shortcut = StandardisedConv2d(wide_in, wide_out, 1) if projects else None
        self.squeeze_excite = _SqueezeExcite(wide_out)
        self.skip_gain = ScalarGain()

    def forward(self, inputs: Tensor) -> Tensor:
        signal = self.activation(inputs) * self.beta
        shortcut = inputs
        if self.conv_shortcut is not None:
            shortcut = self.conv_shortcut(self.shrink(signal))
        signal = self.conv1(self.pad(self.activation(self.conv0(signal))))
        signal = self.conv2(self.activation(self.conv1b(self.activation(signal))))
        # A gate is about 1/2, so twice the gate keeps the variance.
        gained: Tensor = self.skip_gain(2 * self.squeeze_excite(signal) * signal)
        return shortcut + _ALPHA * gained


class _SqueezeExcite(nn.Module):
    """A gate between 0 and 1 for every channel, from the channels' means."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.linear = nn.Linear(wide, wide // 2)
        self.activation = nn.ReLU()
        self.linear_1 = nn.Linear(wide // 2, wide)

    def forward(self, inputs: Tensor) -> Tensor:
        gates = self.linear_1(self.activation(self.linear(inputs.mean((2, 3)))))
        return torch.sigmoid(gates)[:, :, None, None]


_STEM = {"stem_conv0": "stem.1", "stem_conv1": "stem.3", "stem_conv2": "stem.5"}
_STEM |= {"stem_conv3": "stem.8", "final_conv": "final.0", "linear": "classify"}
_LEAF = {"w": "weight", "b": "bias", "skip_gain": "skip_gain.gain"}


def _own(name: str) -> str:
    """Our name of a parameter such as NFNet/~/nf_block_3/~/squeeze_excite/~/linear/w."""
    *modules, leaf = name.removeprefix("NFNet/~/").replace("/~/", "/").split("/")
    block = re.fullmatch(r"nf_block(?:_(\d+))?", modules[0]) if modules else None
    if block:
        modules[0] = f"blocks.{block[1] or 0}"
    return ".".join(_STEM.get(part, part) if not block else part for part in modules) + (
        "." + _LEAF.get(leaf, leaf)
    )
