"""How far the headline figure scatters, of records each of which may be right and wrong at once.

Micro-F1 is a ratio of sums over records. To first order its variance is the sum of the squares of
what each record adds to the ratio's residual, and counts by label do not tell it: mistakes in
several labels of one record may go together. So that sum is released too, in a unit that the noisy
counts suggest: every record adds between 0 and 1.

Source: Cochran (1977), Sampling Techniques, Sec. 2.11: the ratio estimator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.training.protected_figures import Counts, Floats, ratio_of

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


def spread_unit(counts: Counts, *, records: int, noise: float) -> SpreadUnit:
    """The unit that noisy counts suggest.

    Args:
      counts: (labels, 2, 2) noisy counts.
      records: of the validation set; public.
      noise: standard deviation on each count.
    """
    hits, whole = ratio_of(counts, records=records)
    figure = min(1.0, max(0.0, hits / whole)) if whole >= 1 else 0.5
    squares = squared_residuals(figure)
    most = (len(counts) * max(figure, 2 * (1 - figure))) ** 2
    # Where noise drowns the counts it is what they may hide.
    hidden = noise * math.sqrt(len(counts) * float((squares**2).sum()))
    expected = max(float((counts * squares).sum()), hidden) / records
    return SpreadUnit(figure=figure, square=min(most, _ROOM * expected))


def squared_residuals(figure: float) -> Floats:
    """What one label adds to the variance of micro-F1, by whether it is true and said, (2, 2)."""
    return np.array([[0.0, figure**2], [figure**2, 4 * (1 - figure) ** 2]])


def spread_of(hits: Floats, whole: Floats, unit: SpreadUnit) -> float:
    """The spread of records: what leaves only with noise.

    Args:
      hits: (n,) what each adds to the headline's numerator (`headline_terms`).
      whole: (n,) what it adds to its denominator.
      unit: in which it is counted.

    Returns:
      A sum to which every record adds between 0 and 1. Private.
    """
    residuals: NDArray[np.float64] = hits - unit.figure * whole
    return float(np.minimum(1.0, residuals**2 / unit.square).sum())
