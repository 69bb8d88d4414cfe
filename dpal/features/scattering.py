"""Wavelet scattering: features of an image that no data was needed for.

An image is filtered with wavelets of `orientations` directions and `scales` sizes, the
modulus is taken, the result filtered with the larger wavelets once more; every stage is
averaged over windows of 2**scales pixels. Small shifts and deformations change little,
which is what a linear classifier needs. Nothing is learned, so nothing is paid for.

Source: Bruna & Mallat (2013), "Invariant scattering convolution networks"; for images
Oyallon & Mallat (2015), "Deep roto-translation scattering"; under differential privacy
Tramèr & Boneh (2021), "Differentially private learning needs better features".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dpal import check
from dpal.errors import DataError

_PLANES_AT_ONCE = 16  # transformed together: what a processor's cache holds

# Widths of the filters at the finest scale, in pixels, and the wavelets' frequency, in
# radians a pixel: the published choice, at which they cover the frequency plane evenly.
_WIDTH = 0.8
_FREQUENCY = 3 * math.pi / 4
_COPIES = range(-2, 3)  # of a filter, one image size apart, that are added to make it periodic


@dataclass(frozen=True, kw_only=True)
class Scattering:
    """Scattering coefficients of the orders 0, 1 and 2 of every channel.

    Attributes:
      scales: number of wavelet sizes J; the output is 2**J times coarser than the image.
      orientations: number of directions L.
    """

    scales: int = 2
    orientations: int = 8

    def __post_init__(self) -> None:
        check.at_least(1, scales=self.scales, orientations=self.orientations)

    @property
    def coefficients(self) -> int:
        """Numbers per channel and place: 81 for two scales and eight orientations."""
        first = self.scales * self.orientations
        second = self.orientations**2 * math.comb(self.scales, 2)
        return 1 + first + second

    def __call__(self, images: Tensor) -> Tensor:
        """Transforms images, every one by itself.

        Args:
          images: (n, channels, height, width) of floating point, on the CPU.

        Returns:
          (n, channels, coefficients, height / 2**J, width / 2**J) float32, sides rounded
          up; order 0, then order 1 by scale and direction, then order 2 by both of each.

        Raises:
          DataError: the records are no images, or so small that they have no inside.
        """
        block = 2**self.scales
        if images.ndim != 4 or min(images.shape[2:]) <= 2 * block:
            raise DataError(
                f"scattering over {self.scales} scales takes images with sides above {2 * block}, "
                f"not records of shape {tuple(images.shape[1:])}; set data.extractor to none"
            )
        count, channels, *sides = images.shape
        kept = [math.ceil(side / block) for side in sides]
        if not count:
            return torch.zeros(0, channels, self.coefficients, *kept)
        planes = images.float().reshape(count * channels, 1, *sides)
        padded = functional.pad(planes, _margins(sides, block), mode="reflect").squeeze(1)
        bank = _bank(padded.shape[1], padded.shape[2], self.scales, self.orientations)
        parts = [self._transform(part, bank) for part in torch.split(padded, _PLANES_AT_ONCE)]
        return torch.cat(parts).reshape(count, channels, self.coefficients, *kept)

    def _transform(self, planes: Tensor, bank: _Bank) -> Tensor:
        """(n, h, w) padded planes to (n, coefficients, h', w') coefficients."""
        spectrum = torch.fft.fft2(planes)
        orders: list[list[Tensor]] = [[bank.average(planes[:, None], 0)], [], []]
        for first in range(self.scales):
            outer = _filtered(spectrum[:, None], bank.wavelets[0][first], 2**first)
            orders[1].append(bank.average(outer, first))
            if first + 1 == self.scales:
                continue
            outer_spectrum = torch.fft.fft2(outer)[:, :, None]
            for second in range(first + 1, self.scales):
                wavelets = bank.wavelets[first][second]
                inner = _filtered(outer_spectrum, wavelets, 2 ** (second - first))
                orders[2].append(bank.average(inner.flatten(1, 2), second))
        return torch.cat([part for order in orders for part in order], dim=1)


class _Bank(NamedTuple):
    """Filters for planes of one padded size.

    wavelets: by resolution and scale, (orientations, h, w) real spectra of Morlet wavelets.
    averages: by resolution, the two matrices that average, thin out and cut the margin off.
    """

    wavelets: tuple[dict[int, Tensor], ...]
    averages: tuple[tuple[Tensor, Tensor], ...]

    def average(self, planes: Tensor, resolution: int) -> Tensor:
        """Averages planes that have been thinned out 2**resolution times already."""
        # The average is a Gaussian, hence one matrix for each axis: no transform is needed.
        down, across = self.averages[resolution]
        return down @ planes @ across.T


def _filtered(spectrum: Tensor, wavelets: Tensor, thinning: int) -> Tensor:
    """Modulus of the filtered planes, at every `thinning`-th place of both axes."""
    # Taking every k-th place of an axis is adding up k pieces of the spectrum.
    product = spectrum * wavelets
    for axis in (-2, -1) if thinning > 1 else ():
        first, *others = product.chunk(thinning, dim=axis)
        product = sum(others, start=first)
    modulus: Tensor = torch.fft.ifft2(product).abs() / thinning**2
    return modulus


def _margins(sides: list[int], block: int) -> list[int]:
    """Padding as `functional.pad` takes it: one block around, and up to a whole block behind."""
    height, width = sides
    return [block, block + -width % block, block, block + -height % block]


@lru_cache(maxsize=8)
def _bank(height: int, width: int, scales: int, orientations: int) -> _Bank:
    """Builds the filters in double precision, and keeps them in single.

    A thinned-out plane is filtered with the part of a spectrum that its frequencies are in.
    """
    wavelets: list[dict[int, Tensor]] = []
    for resolution in range(scales):
        at_resolution = {}
        for scale in range(resolution, scales):
            filters = [
                # Real, as a Morlet wavelet is symmetric under a change of sign and conjugation.
                np.fft.fft2(_morlet(height, width, scale, turn, orientations)).real
                for turn in range(orientations)
            ]
            spectra = _low(_low(np.stack(filters), resolution, axis=1), resolution, axis=2)
            # Complex, as mixed products are slow.
            at_resolution[scale] = torch.from_numpy(spectra.astype(np.complex64))
        wavelets.append(at_resolution)
    averages = [
        tuple(_averaging(side, scales, resolution) for side in (height, width))
        for resolution in range(scales)
    ]
    return _Bank(tuple(wavelets), tuple((down, across) for down, across in averages))


def _low(spectrum: NDArray[np.float64], resolution: int, *, axis: int) -> NDArray[np.float64]:
    """The frequencies of an axis that are left when it is thinned out 2**resolution times."""
    side = spectrum.shape[axis] >> resolution
    places = np.r_[: side // 2, -(side - side // 2) : 0]
    return np.asarray(np.take(spectrum, places, axis=axis))


def _morlet(
    height: int, width: int, scale: int, turn: int, orientations: int
) -> NDArray[np.complex128]:
    """A wave under a Gaussian window, its mean taken away: (height, width), periodic."""
    angle = (orientations // 2 - 1 - turn) * math.pi / orientations
    wave = _FREQUENCY / 2**scale
    deviation, slant = _WIDTH * 2**scale, 4 / orientations
    total = np.zeros((height, width), dtype=np.complex128)
    window = np.zeros((height, width))
    for down in _COPIES:
        for across in _COPIES:
            y, x = np.mgrid[:height, :width].astype(np.float64)
            y, x = y + down * height, x + across * width
            along = y * math.cos(angle) + x * math.sin(angle)
            beside = -y * math.sin(angle) + x * math.cos(angle)
            bell = np.exp(-(along**2 + (slant * beside) ** 2) / (2 * deviation**2))
            window += bell
            total += bell * np.exp(1j * wave * along)
    total -= window * total.sum() / window.sum()
    return np.asarray(total * slant / (2 * math.pi * deviation**2))


def _averaging(side: int, scales: int, resolution: int) -> Tensor:
    """(kept, side / 2**resolution): Gaussian average at every 2**scales-th place, inside only."""
    deviation, thinned = _WIDTH * 2 ** (scales - 1), side >> resolution
    places = np.arange(side)
    bell = sum(np.exp(-((places + copy * side) ** 2) / (2 * deviation**2)) for copy in _COPIES)
    spectrum = np.fft.fft(bell / (math.sqrt(2 * math.pi) * deviation)).real
    kernel = np.fft.ifft(_low(spectrum, resolution, axis=0)).real
    step = 2 ** (scales - resolution)
    rows = np.arange(1, side // 2**scales - 1) * step
    matrix = kernel[(rows[:, None] - np.arange(thinned)) % thinned]
    return torch.from_numpy(matrix.astype(np.float32))
