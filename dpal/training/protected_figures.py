"""Figures of a model from noisy counts of records, with intervals that include the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.errors import ParameterError
from dpal.planning.measured_phases import QUANTILE, blur_of_accuracy

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A figure with its 95 % interval, all as shares of 1.

    Attributes:
      value: the figure.
      low: where the interval begins.
      high: where it ends.
      standard_error: of the figure, over records drawn for judging and over the noise.
    """

    value: float
    low: float
    high: float
    standard_error: float


def confusion_counts(probabilities: Floats, labels: NDArray[np.integer]) -> Counts:
    """Counts records by their class and a model's answer. Every record is in one count.

    Args:
      probabilities: (n, classes); what is not finite counts as 0.
      labels: (n,) class numbers.

    Returns:
      (classes, classes): rows are true classes, columns answers. Private.

    Raises:
      ParameterError: the shapes do not belong together, or a class is none of the model's.
    """
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1]:
        raise ParameterError(
            f"labels of shape {labels.shape} cannot judge predictions of shape "
            f"{probabilities.shape}; give one label a record"
        )
    classes = probabilities.shape[1]
    true = labels.astype(np.int64)
    if not ((true >= 0) & (true < classes)).all():
        raise ParameterError("a validation record has a class that the model does not know")
    said = np.where(np.isfinite(probabilities), probabilities, 0.0).argmax(axis=1)
    cells = np.bincount(true * classes + said, minlength=classes**2)
    return cells.astype(np.int64).reshape(classes, classes)


def noisy_accuracy(counts: Counts, *, records: int, noise: float) -> Interval:
    """Accuracy from noisy confusion counts.

    The interval is Wilson's, with the noise's variance beside that of sampling: all p that lie
    within so many of their own standard deviations of the figure.

    Args:
      counts: (classes, classes) noisy counts.
      records: of the validation set; public.
      noise: standard deviation on each count.

    Source: Wilson (1927), "Probable inference".
    """
    classes = len(counts)
    seen = float(np.trace(counts)) / records
    blurred = blur_of_accuracy(records, classes, noise)
    square = QUANTILE**2
    # (seen - p)^2 = square * (p (1 - p) / records + blurred), solved for p.
    middle = (seen + square / (2 * records)) / (1 + square / records)
    constant = (seen**2 - square * blurred) / (1 + square / records)
    half = math.sqrt(max(0.0, middle**2 - constant))
    value = min(1.0, max(0.0, seen))
    return Interval(
        value=value,
        low=min(1.0, max(0.0, middle - half)),
        high=min(1.0, max(0.0, middle + half)),
        standard_error=math.sqrt(value * (1 - value) / records + blurred),
    )
