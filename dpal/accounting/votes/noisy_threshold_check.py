"""Noisy counts that answers are read off, and the check of the largest one: what votes share."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal import check
from dpal.errors import ParameterError

Floats = NDArray[np.float64]


def require_check(threshold: float | None, threshold_sigma: float | None) -> None:
    """Requires a threshold with its noise, or neither.

    Raises:
      ParameterError: one is missing, or out of range.
    """
    if (threshold is None) != (threshold_sigma is None):
        raise ParameterError("a threshold and its threshold_sigma belong together")
    if threshold is not None and threshold_sigma is not None:
        check.at_least(0, threshold=threshold)
        check.positive(threshold_sigma=threshold_sigma)


def counts_multiplier(answers: int, sigma: float, threshold_sigma: float | None) -> float:
    """Noise multiplier of all counts, and checks, as one Gaussian release.

    Args:
      answers: that one ballot can change, two counts each.
      sigma: of the noise on a count, in votes.
      threshold_sigma: of the noise of a check; None without one.
    """
    checked = 0.0 if threshold_sigma is None else threshold_sigma**-2
    return 1 / math.sqrt(answers * (2 / sigma**2 + checked))


def log_checks(largest: Floats, threshold: float | None, threshold_sigma: float | None) -> Floats:
    """Log-chances that an answer is given, and that it is not, (n, 2), by the largest count."""
    if threshold is None or threshold_sigma is None:
        return np.tile([0.0, -np.inf], (largest.size, 1))
    above = (largest - threshold) / threshold_sigma
    return np.stack([scipy.special.log_ndtr(above), scipy.special.log_ndtr(-above)], axis=1)
