"""What a convolution reads, as matrices; images are (n, channels, height, width)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The public shape of a convolution, in two dimensions.

    Attributes:
      kernel: height and width of the filter.
      stride: of the output positions.
      dilation: of the filter's taps.
      padding: left, right, top, bottom.
      mode: of the padding, as in `torch.nn.functional.pad`.
      groups: into which channels fall.
    """

    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: tuple[int, int, int, int]
    mode: str
    groups: int

    @classmethod
    def of(cls, layer: nn.Conv1d | nn.Conv2d) -> Geometry:
        """Reads the geometry of a layer; one dimension becomes a row."""
        sides = layer._reversed_padding_repeated_twice
        flat = len(layer.kernel_size) == 1
        left, right, top, bottom = (*sides, 0, 0) if flat else tuple(sides)
        return cls(
            kernel=_pair(layer.kernel_size),
            stride=_pair(layer.stride),
            dilation=_pair(layer.dilation),
            padding=(left, right, top, bottom),
            mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode,
            groups=layer.groups,
        )

    @property
    def keeps_places(self) -> bool:
        """Whether output position t reads the pixels around pixel t, zeros outside."""
        reach = tuple(d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True))
        left, right, top, bottom = self.padding
        even = left == right and top == bottom and (2 * top, 2 * left) == reach
        central = all(k % 2 == 1 for k in self.kernel)  # an even filter has no tap on its pixel
        plain = self.stride == (1, 1) and self.groups == 1 and self.mode == "constant"
        return even and central and plain

    @property
    def even_padding(self) -> Pair | None:
        """Height and width of a border of zeros that is the same on both sides, or None."""
        left, right, top, bottom = self.padding
        even = left == right and top == bottom and self.mode == "constant"
        return (top, left) if even else None

    def pad(self, images: Tensor) -> Tensor:
        """Adds the border that the filter reads."""
        return F.pad(images, self.padding, mode=self.mode) if any(self.padding) else images

    def patches(self, images: Tensor, places: Pair) -> Tensor:
        """What every output position reads.

        Args:
          images: (n, channels, height, width), not padded.
          places: height and width of the output.

        Returns:
          (n * groups, places, taps * channels / groups), taps first.
        """
        padded = self.pad(images).permute(0, 2, 3, 1).contiguous()
        n, _, _, channels = padded.shape
        over_n, over_h, over_w, over_c = padded.stride()
        (kh, kw), (sh, sw), (dh, dw) = self.kernel, self.stride, self.dilation
        taps = padded.as_strided(
            (n, *places, kh, kw, channels),
            (over_n, sh * over_h, sw * over_w, dh * over_h, dw * over_w, over_c),
        )
        count = places[0] * places[1]
        if self.groups == 1:
            return taps.reshape(n, count, kh * kw * channels)
        split = taps.reshape(n, count, kh * kw, self.groups, channels // self.groups)
        return split.permute(0, 3, 1, 2, 4).reshape(n * self.groups, count, -1)

    def filters(self, matrices: Tensor) -> Tensor:
        """Turns (n, out, taps * channels / groups) into filters (n, out, channels, *kernel)."""
        n, out, _ = matrices.shape
        return matrices.reshape(n, out, *self.kernel, -1).permute(0, 1, 4, 2, 3)


def rows(images: Tensor, groups: int = 1) -> Tensor:
    """(n, channels, ...) as (n * groups, places, channels / groups)."""
    n, channels = images.shape[:2]
    flat = images.movedim(1, -1).reshape(n, -1, channels)
    if groups == 1:
        return flat
    split = flat.reshape(n, flat.shape[1], groups, -1)
    return split.permute(0, 2, 1, 3).reshape(n * groups, flat.shape[1], -1)


def shifted_gram(pixels: Tensor, geometry: Geometry, places: Pair, copies: int) -> Tensor:
    """Gram matrix of patches from that of pixels, where places are kept.

    Two patches overlap tap by tap, so their inner product is a sum of inner products of
    pixels, shifted along both positions at once: first along the width, then the height.

    Args:
      pixels: (n, copies * places, channels).
      geometry: with `keeps_places`.
      places: height and width.
      copies: views of each record.

    Returns:
      (n, copies * places, copies * places).
    """
    n, positions = pixels.shape[:2]
    gram = torch.bmm(pixels, pixels.transpose(1, 2))
    shaped = gram.reshape(n, copies, *places, copies, *places)
    for axis in (1, 0):
        taps, step = geometry.kernel[axis], geometry.dilation[axis]
        shaped = _sum_of_shifts(shaped, 2 + axis, 5 + axis, taps=taps, step=step)
    return shaped.reshape(n, positions, positions)


def _sum_of_shifts(gram: Tensor, first: int, second: int, *, taps: int, step: int) -> Tensor:
    total, size = gram.clone(), gram.shape[first]
    for tap in range(1, taps // 2 + 1):
        by = tap * step
        if by >= size:
            break
        low = total.narrow(first, 0, size - by).narrow(second, 0, size - by)
        high = total.narrow(first, by, size - by).narrow(second, by, size - by)
        low += gram.narrow(first, by, size - by).narrow(second, by, size - by)
        high += gram.narrow(first, 0, size - by).narrow(second, 0, size - by)
    return total


def _pair(values: tuple[int, ...]) -> Pair:
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])
