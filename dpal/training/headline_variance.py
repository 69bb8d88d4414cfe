"""How far the headline figure scatters where labels or records may be right and wrong together.

Accuracy and micro-F1 are ratios of sums over records. To first order their variance is the sum of
the squares of what each record, or group, adds to the ratio's residual, and counts do not tell it:
mistakes in several labels of one record, or in several records of one group, may go together. So
that sum is released too, in a unit that the noisy counts suggest: every record, or group, adds
between 0 and 1.

Source: Cochran (1977), Sampling Techniques, Sec. 2.11: the ratio estimator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.training.noisy_metrics import Counts, Floats, ratio_of

_ROOM = 64.0  # times what independent labels would add; what is larger counts as that


@dataclass(frozen=True, kw_only=True)
class SpreadUnit:
    """In what the spread is counted; follows from released counts alone.

    Attributes:
      figure: the headline by these counts, of which residuals are taken.
      square: the square of a residual that counts as 1; larger ones do, too.
    """

    figure: float
    square: float


def spread_unit(
    counts: Counts, *, records: int, noise: float, groups: int | None = None, group_records: int = 1
) -> SpreadUnit:
    """The unit that noisy counts suggest.

    Args:
      counts: (classes, classes) or (labels, 2, 2) noisy counts.
      records: that are measured; public.
      noise: standard deviation on each count.
      groups: whose records they are; None where each is by itself.
      group_records: that are measured of one group at most.
    """
    hits, whole = ratio_of(counts, records=records)
    figure = min(1.0, max(0.0, hits / whole)) if whole >= 1 else 0.5
    squares = squared_residuals(figure, counts)
    labels = len(counts) if counts.ndim == 3 else 1
    most = group_records**2 * labels**2 * float(squares.max())
    # Where noise drowns the counts it is what they may hide.
    hidden = noise * math.sqrt(float((squares**2).sum()))
    expected = max(float((counts * squares).sum()), hidden) / (groups or records)
    return SpreadUnit(figure=figure, square=min(most, _ROOM * expected))


def squared_residuals(figure: float, counts: Counts) -> Floats:
    """What a record adds to the headline's variance by being in a count, in the counts' shape."""
    if counts.ndim == 2:
        return np.where(np.eye(len(counts)) > 0, 4 * (1 - figure) ** 2, 4 * figure**2)
    of_label = np.array([[0.0, figure**2], [figure**2, 4 * (1 - figure) ** 2]])
    return np.broadcast_to(of_label, counts.shape)


def spread_of(
    hits: Floats, whole: Floats, unit: SpreadUnit, *, owners: NDArray[np.int64] | None = None
) -> float:
    """The spread of records or groups: what leaves only with noise.

    Args:
      hits: (n,) what each record adds to the headline's numerator (`headline_terms`).
      whole: (n,) what it adds to its denominator.
      unit: in which it is counted.
      owners: (n,) number of each record's group; None where each is by itself.

    Returns:
      A sum to which every record, or group, adds between 0 and 1. Private.
    """
    residuals: NDArray[np.float64] = hits - unit.figure * whole
    if owners is not None:
        residuals = np.bincount(owners, weights=residuals).astype(np.float64)
    return float(np.minimum(1.0, residuals**2 / unit.square).sum())
