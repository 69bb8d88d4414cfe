"""The rule for convolutions, and for those whose filter is a function of their parameters."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from dpal.training.per_record.layer_rule import (
    GHOST,
    INSTANTIATE,
    KEEP,
    PIXEL_GRAM,
    Rule,
)
from dpal.training.per_record.norms_and_sums import (
    PerRecord,
    SquaredNorms,
    at_once,
    gram_product,
    measured,
    weigh_records,
)
from dpal.training.per_record.patches import Geometry, Pair, rows, shifted_gram

_HOPELESS = 6  # a way that multiplies so many times more than the best is not tried


class ConvolutionRule(Rule):
    """nn.Conv1d and nn.Conv2d with any stride, padding, dilation and groups.

    Source:
      Choice between ways: Bu, Mao & Xu (2022), "Scalable and efficient training of large
      convolutional neural networks with differential privacy". The pixel Gram matrix is
      our own: see `patches.shifted_gram`.
    """

    def __init__(self, layer: nn.Module, geometry: Geometry, shape: torch.Size) -> None:
        """Takes a layer and the shape of its filter (out, channels / groups, *kernel)."""
        super().__init__(layer)
        self._shape, self._geometry = shape, geometry
        self._wanted = self.parameters  # of weight and bias

    @classmethod
    def of(cls, layer: nn.Conv1d | nn.Conv2d) -> ConvolutionRule:
        """The rule of a plain convolution."""
        return cls(layer, Geometry.of(layer), layer.weight.shape)

    def per_record(self, inputs: Tensor, grads: Tensor, records: int) -> PerRecord:
        """See `Rule`."""
        images, back = _images(inputs), _images(grads)
        copies, gradients = len(images) // records, {}
        if "weight" in self._wanted:
            filters = self._geometry.filters(self._matrices(images, back, copies))
            gradients["weight"] = filters.reshape(records, *self._shape)
        if "bias" in self._wanted:
            gradients["bias"] = self._bias(back, records)
        return gradients

    def weighted(self, inputs: Tensor, grads: Tensor, weights: Tensor) -> PerRecord:
        """See `Rule`."""
        images, back, geometry = _images(inputs), _images(grads), self._geometry
        sums: dict[str, Tensor] = {}
        if "weight" in self._wanted:
            padding = geometry.even_padding
            if padding is None:
                images, padding = geometry.pad(images), (0, 0)
            filters = back.new_empty(*self._shape[:2], *geometry.kernel)
            _, gradient, _ = torch.ops.aten.convolution_backward(
                weigh_records(back, weights), images, filters, None,
                geometry.stride, padding, geometry.dilation, False, (0, 0),
                geometry.groups, (False, True, False),
            )  # fmt: skip
            sums["weight"] = gradient.reshape(self._shape)
        if "bias" in self._wanted:
            sums["bias"] = weights @ self._bias(back, len(weights))
        return sums

    def ways(self, inputs: Tensor, grads: Tensor, records: int) -> tuple[str, ...]:
        """See `Rule`: sorted by multiplications, the hopeless left out."""
        images, back = _images(inputs), _images(grads)
        copies = len(images) // records
        positions = copies * back.shape[2] * back.shape[3]
        size = self._shape.numel()
        channels, out = images.shape[1], back.shape[1]
        taps = self._geometry.kernel[0] * self._geometry.kernel[1]
        costs = {INSTANTIATE: positions * size}
        if self._geometry.groups == 1:
            costs[GHOST] = positions**2 * (taps * channels + out)
        if self._geometry.keeps_places:
            costs[PIXEL_GRAM] = positions**2 * (channels + taps + out)
        best = min(costs.values())
        ways = sorted((w for w in costs if costs[w] <= _HOPELESS * best), key=costs.__getitem__)
        # Kept gradients save the pass that sums them, and free what they were computed from.
        keeps = size <= copies * (images[0].numel() + back[0].numel())
        return tuple(KEEP if way == INSTANTIATE and keeps else way for way in ways)

    def squared_norms(
        self, inputs: Tensor, grads: Tensor, records: int, *, way: str
    ) -> SquaredNorms:
        """See `Rule`."""
        images, back = _images(inputs), _images(grads)
        copies = len(images) // records
        many = self._at_once(images, back, copies, gram=way != INSTANTIATE)
        parts = [self._measure(a, b, copies, way) for a, b in _split(images, back, many)]
        value, rounding = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        if "bias" in self._wanted:
            value = value + self._bias(back, records).square().sum(dim=1)
        return SquaredNorms(value, rounding)

    def _measure(self, images: Tensor, back: Tensor, copies: int, way: str) -> SquaredNorms:
        records, places = len(images) // copies, _places(back)
        if "weight" not in self.parameters:
            return SquaredNorms.exact(back.new_zeros(records))
        if way == INSTANTIATE:
            taps = self._geometry.kernel[0] * self._geometry.kernel[1]
            matrices = self._matrices(images, back, copies)
            return measured(matrices, images, back, precision=self.precision, taps=taps)
        sent = rows(back).reshape(records, -1, back.shape[1])
        if way == PIXEL_GRAM:
            pixels = rows(images).reshape(records, -1, images.shape[1])
            read = shifted_gram(pixels, self._geometry, places, copies)
        else:
            patches = self._geometry.patches(images, places).reshape(records, sent.shape[1], -1)
            read = torch.bmm(patches, patches.transpose(1, 2))
        return gram_product(read, torch.bmm(sent, sent.transpose(1, 2)))

    def _matrices(self, images: Tensor, back: Tensor, copies: int) -> Tensor:
        """Gradients (n, out, taps * channels / groups) of every record's filter, taps first."""
        groups, out = self._geometry.groups, back.shape[1]
        records, many = len(images) // copies, self._at_once(images, back, copies)
        matrices = back.new_empty(records * groups, out // groups, self._shape[1:].numel())
        for number, (a, b) in enumerate(_split(images, back, many)):
            read, sent = self._geometry.patches(a, _places(b)), rows(b, groups)
            if copies > 1:
                read, sent = (_join_copies(values, copies, groups) for values in (read, sent))
            start = number * many // copies * groups
            torch.bmm(sent.transpose(1, 2), read, out=matrices[start : start + len(sent)])
        return matrices.reshape(records, out, -1)

    def _bias(self, back: Tensor, records: int) -> Tensor:
        return back.sum(dim=(2, 3)).reshape(records, -1, back.shape[1]).sum(dim=1)

    def _at_once(self, images: Tensor, back: Tensor, copies: int, *, gram: bool = False) -> int:
        """How many rows of a chunk to take at a time, whole records only."""
        positions = copies * back.shape[2] * back.shape[3]
        taps = self._geometry.kernel[0] * self._geometry.kernel[1]
        each = max(copies * images.shape[1] * taps * back[0, 0].numel(), self._shape.numel())
        if gram:
            each = max(positions**2, copies * images[0].numel())
        return copies * at_once(images, each)


def _images(values: Tensor) -> Tensor:
    """(n, channels, length) as images of one row."""
    return values[:, :, None] if values.dim() == 3 else values


def _places(back: Tensor) -> Pair:
    return back.shape[2], back.shape[3]


def _split(images: Tensor, back: Tensor, many: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(images, many), torch.split(back, many), strict=True)


def _join_copies(values: Tensor, copies: int, groups: int) -> Tensor:
    """(n * copies * groups, places, width) as (n * groups, copies * places, width)."""
    _, places, width = values.shape
    split = values.reshape(-1, copies, groups, places, width).transpose(1, 2)
    return split.reshape(-1, copies * places, width)
