"""Figures of a model from noisy counts of records, with intervals that include the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.errors import ParameterError
from dpal.planning.measured_phases import QUANTILE, blur_of_accuracy
from dpal.training.model_worth import ClassWorth, ModelWorth

_KNOWN = 2.0  # a noisy number of records is one where it passes so many of its deviations

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


def noisy_worth(counts: Counts, *, records: int, noise: float) -> ModelWorth:
    """What noisy confusion counts of protected records say of it; nothing more is read.

    The most frequent class is that of the largest noisy row, which is a little more than what
    always saying it reaches: a model is rather called no better than that.

    Args:
      counts: (classes, classes) noisy counts, rows are true classes; as they were released.
      records: of the validation set; public.
      noise: standard deviation on each count.

    Raises:
      ParameterError: there is no record.
    """
    if records < 1:
        raise ParameterError(f"{records} protected records cannot judge a model")
    rows, right = counts.sum(axis=1).astype(np.float64), np.diag(counts).astype(np.float64)
    usual, others = int(rows.argmax()), len(counts) - 1
    # Where the model is right and the most frequent answer is wrong, and the other way round.
    better = (right.sum() - right[usual]) / records
    worse = (rows[usual] - right[usual]) / records
    sampling = max(0.0, better + worse - (better - worse) ** 2) / records
    # Each count is rounded as well, which adds 1/12.
    blurred = 2 * others * (noise**2 + 1 / 12) / records**2
    least = max(1.0, _KNOWN * noise * math.sqrt(len(counts)))
    classes = tuple(
        ClassWorth(
            records=max(0, int(row)),
            recall=_in_unit(found / row) if row > least else None,
            auc=None,
        )
        for row, found in zip(rows, right, strict=True)
    )
    recalls = [each.recall for each in classes if each.recall is not None]
    return ModelWorth(
        majority=_in_unit(rows[usual] / records),
        gain_standard_error=math.sqrt(sampling + blurred),
        balanced_accuracy=float(np.mean(recalls)) if recalls else 0.0,
        auc=None,
        auc_standard_error=None,
        classes=classes,
    )


def _in_unit(value: float) -> float:
    return float(min(1.0, max(0.0, value)))
