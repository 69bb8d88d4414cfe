"""Filters that commute with the turns and flips of the grid, as a basis."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpal.errors import ParameterError
from dpal.models.equivariant.groups import PointGroup, transformed_grid

_OUTER_WIDTH = 0.4
_INNER_WIDTH = 0.6
_CENTRE_WIDTH = 0.005
_FREQUENCIES_PER_RADIUS = 3
_NOTHING_LEFT = 1e-6


@lru_cache(maxsize=16)
def planar_basis(kernel_size: int) -> NDArray[np.float64]:
    """Orthonormal filters on the pixel grid without fast turning detail.

    Rings at radius 0, 1, 2, ... with a Gaussian profile across, and on the ring of radius
    r the circular harmonics up to frequency 3r; sampled at the pixels, then made
    orthonormal in this order. A 3x3 filter keeps 8 of its 9 dimensions.

    Args:
      kernel_size: odd side of the filter.

    Returns:
      (dimensions, kernel_size, kernel_size), read only.

    Raises:
      ParameterError: the side is even, so that no pixel is the centre.

    Source:
      Weiler & Cesa (2019), "General E(2)-equivariant steerable CNNs"; widths 0.4
      (outermost ring), 0.6, and 0.005 at the centre, as in the authors' library e2cnn.
    """
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ParameterError(
            f"a steerable filter of side {kernel_size} has no centre pixel; take an odd side"
        )
    reach = kernel_size // 2
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(float)
    radius, angle = np.hypot(rows, columns), np.arctan2(rows, columns)
    kept: list[NDArray[np.float64]] = []
    for ring in range(reach + 1):
        width = _CENTRE_WIDTH if ring == 0 else _OUTER_WIDTH if ring == reach else _INNER_WIDTH
        profile = np.exp(-((radius - ring) ** 2) / (2 * width**2))
        for frequency in range(_FREQUENCIES_PER_RADIUS * ring + 1):
            waves = [np.cos(frequency * angle), np.sin(frequency * angle)]
            # The centre pixel has no angle: only the constant may be seen there.
            profile_seen = profile if frequency == 0 else np.where(radius == 0, 0, profile)
            for wave in waves[: 1 if frequency == 0 else 2]:
                _keep(profile_seen * wave, kept)
    basis = np.stack(kept)
    basis.flags.writeable = False
    return basis


@lru_cache(maxsize=16)
def steerable_basis(
    group: PointGroup, kernel_size: int, *, from_regular: bool
) -> NDArray[np.float64]:
    """All filters from one field to one regular field that commute with the group.

    A filter is free for the output channel of the identity; the channel of h repeats it,
    turned by h, with the input channels moved along.

    Args:
      group: turns and flips to commute with.
      kernel_size: odd side of the filter.
      from_regular: the input is a regular field; if not, a plain channel, which the
        group leaves alone.

    Returns:
      (coefficients, order, channels_in, kernel_size, kernel_size), read only: orthonormal
      elements (output channel, input channel, row, column), so that coefficients and
      filters have the same norm. channels_in is the group's order, or 1.

    Raises:
      ParameterError: the side is even.

    Source:
      Cohen & Welling (2016), "Group equivariant convolutional networks", on the planar
      basis above; the same span as the solutions in Weiler & Cesa (2019).
    """
    planar = planar_basis(kernel_size)
    turned = np.stack([transformed_grid(planar, element) for element in group.elements], axis=1)
    turned = turned / math.sqrt(group.order)
    if not from_regular:
        basis = turned[:, :, None]
    else:
        shape = (group.order, len(planar), group.order, group.order, kernel_size, kernel_size)
        by_offset = np.zeros(shape)
        for offset in range(group.order):
            for out in range(group.order):
                by_offset[offset, :, out, group.products[out, offset]] = turned[:, out]
        basis = by_offset.reshape(-1, *shape[2:])
    basis.flags.writeable = False
    return basis


def _keep(function: NDArray[np.float64], kept: list[NDArray[np.float64]]) -> None:
    """Adds what is new in a function, at length 1, unless the grid shows nothing new."""
    length = float(np.linalg.norm(function))
    if length < _NOTHING_LEFT:
        return
    left = function / length
    for _ in range(2):  # twice is enough for orthogonality to rounding
        for earlier in kept:
            left = left - np.sum(earlier * left) * earlier
    length = float(np.linalg.norm(left))
    if length >= _NOTHING_LEFT:
        kept.append(left / length)
