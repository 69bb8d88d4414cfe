"""Principal components under differential privacy: Analyze Gauss, in its isometric form.

The second moments A = sum of x x^T of clipped rows are released with a symmetric Gaussian
matrix (`dpal.mechanisms.symmetric_noise`), of sensitivity max ||x x^T||_F = max ||x||^2; its
eigenvectors are post-processing.

Source: Dwork, Talwar, Thakurta & Zhang (2014), "Analyze Gauss: optimal bounds for
privacy-preserving principal component analysis".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.events import NoisyMoments
from dpal.errors import ParameterError
from dpal.mechanisms.symmetric_noise import noisy_symmetric
from dpal.privacy import Adjacency
from dpal.randomness import BitSource

Floats = NDArray[np.float64]

# Clipping aims this much lower: for the rounding of rows, and of sums in float64. Two sums over n
# rows may differ by about 1e-16 n * (n / 1024 + 10) squared lengths more than their records do,
# which stays below twice the slack up to five million rows.
_SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of clipped, centred rows. Private until noise is added.

    Attributes:
      total: (width, width) sum of x x^T.
      max_norm: bound on the length of every row that went in.
    """

    total: Floats
    max_norm: float

    def __repr__(self) -> str:
        return "Moments(private)"


def sensitivity(max_norm: float, adjacency: Adjacency) -> float:
    """Most that one record changes the moments by, in Frobenius norm.

    Blanked, a record takes x x^T away: ||x||^2. Replaced by another, it can turn one matrix of
    that norm into an orthogonal one: sqrt(2) times as much, as both are positive.
    """
    check.positive(max_norm=max_norm)
    return max_norm**2 * (1.0 if adjacency is Adjacency.ZERO_OUT else math.sqrt(2))


def clip_rows(rows: Floats, max_norm: float) -> Floats:
    """Scales rows down to a length; a row with anything not finite becomes zero.

    Args:
      rows: (n, width).
      max_norm: a public bound.

    Returns:
      (n, width), every row of length at most `max_norm`.
    """
    check.positive(max_norm=max_norm)
    sound = np.asarray(np.isfinite(rows).all(axis=1))
    kept = np.where(sound[:, None], rows, 0.0)
    # In two steps: squares of huge values would overflow, and infinity / infinity is NaN.
    largest = np.abs(kept).max(axis=1, initial=0.0)
    unit = kept / np.where(largest > 0, largest, 1.0)[:, None]
    lengths = np.linalg.norm(unit, axis=1)
    target = max_norm * (1 - _SLACK)
    with np.errstate(over="ignore"):  # infinite is longer than anything, which is right
        short = largest * lengths <= target
    scale = np.where(short, largest, target / np.where(lengths > 0, lengths, 1.0))
    return np.asarray(unit * scale[:, None])


def moments_of(batches: Iterable[Floats], *, centre: Floats, max_norm: float) -> Moments:
    """Adds up second moments over a stream.

    Args:
      batches: of (n, width) rows.
      centre: (width,) a public or paid-for point that is taken off every row first.
      max_norm: public bound on the length of a row, after that.

    Raises:
      ParameterError: rows are of another width than the centre. Nothing was released.
    """
    total = np.zeros((centre.size, centre.size))
    for rows in batches:
        if rows.ndim != 2 or rows.shape[1] != centre.size:
            raise ParameterError.before_release(
                f"embeddings have shape {rows.shape} and {centre.size} columns are expected, the "
                "width that the model gives"
            )
        clipped = clip_rows(rows - centre, max_norm)
        total += clipped.T @ clipped
    return Moments(total, max_norm)


def noisy_moments(
    moments: Moments, event: NoisyMoments, *, adjacency: Adjacency, rng: BitSource
) -> Floats:
    """Releases second moments, symmetric and on a public grid.

    Args:
      moments: of clipped rows.
      event: how much noise, as it is charged.
      adjacency: of the promise; it decides the sensitivity.
      rng: source of the noise.

    Returns:
      (width, width) symmetric; not necessarily positive.
    """
    scale = event.noise_multiplier * sensitivity(moments.max_norm, adjacency)
    return noisy_symmetric(moments.total, scale, rng=rng)


def components_of(released: Floats, count: int) -> Floats:
    """The first principal components of released moments: post-processing.

    Args:
      released: (width, width) symmetric.
      count: how many.

    Returns:
      (count, width), orthonormal rows, the one with most variance first; the largest entry of
      each is positive.

    Raises:
      ParameterError: there are fewer columns than that.
    """
    width = len(released)
    if not 1 <= count <= width:
        raise ParameterError(
            f"{count} components of embeddings that are {width} wide are impossible; set "
            f"choice.components to at most {width}"
        )
    _, vectors = np.linalg.eigh(released)
    rows = vectors[:, ::-1][:, :count].T
    signs = np.sign(rows[np.arange(count), np.abs(rows).argmax(axis=1)])
    return np.ascontiguousarray(rows * signs[:, None])
