"""Figures of a model from noisy counts of records, with intervals that include the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.errors import ParameterError
from dpal.planning.measured_phases import QUANTILE, blur_of_accuracy, blur_of_f1
from dpal.training.metrics import THRESHOLD

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
      hidden: how much of the way to either end is what bins of scores may hide.
    """

    value: float
    low: float
    high: float
    standard_error: float
    hidden: float = 0.0


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


def label_counts(probabilities: Floats, labels: NDArray[np.integer]) -> Counts:
    """Counts records by each of their labels and a model's answer to it.

    Every record is in one count for each label that is known of it, and in none for others.

    Args:
      probabilities: (n, labels); what is not finite counts as 0.
      labels: (n, labels) zeros and ones, -1 where not known.

    Returns:
      (labels, 2, 2): whether a record has the label, and whether the model says so. Private.

    Raises:
      ParameterError: the shapes do not belong together.
    """
    if probabilities.ndim != 2 or labels.shape != probabilities.shape:
        raise ParameterError(
            f"labels of shape {labels.shape} cannot judge predictions of shape "
            f"{probabilities.shape}; give one row of labels a record"
        )
    sound = np.where(np.isfinite(probabilities), probabilities, 0.0)
    cells = 2 * (labels == 1).astype(np.int64) + (sound > THRESHOLD)
    counts = [(cells == cell) & (labels.astype(np.int64) >= 0) for cell in range(4)]
    return np.stack([cell.sum(axis=0) for cell in counts], axis=1).reshape(-1, 2, 2)


def noisy_accuracy(
    counts: Counts, *, records: int, noise: float, scatter: float | None = None
) -> Interval:
    """Accuracy from noisy confusion counts.

    The interval is Wilson's, with the noise's variance beside that of sampling: all p that lie
    within so many of their own standard deviations of the figure. Where records of a group go
    together, it is the normal one with what sampling is found to scatter.

    Args:
      counts: (classes, classes) noisy counts.
      records: of the validation set; public.
      noise: standard deviation on each count.
      scatter: variance of twice the hits over which groups were drawn for judging, all together
        (`dpal.training.headline_variance`); None where records are by themselves.

    Source: Wilson (1927), "Probable inference".
    """
    classes = len(counts)
    if scatter is not None:
        hits, whole = ratio_of(counts, records=records)
        variance = scatter + whole**2 * blur_of_accuracy(records, classes, noise)
        low, high = _fieller(hits, whole, (variance, 0.0, 0.0))
        error = min(1.0, math.sqrt(variance) / whole)
        return Interval(value=_ratio(hits, whole), low=low, high=high, standard_error=error)
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


def noisy_f1(counts: Counts, *, noise: float, scatter: float) -> Interval:
    """Micro-F1 from noisy counts of several labels.

    The interval is Fieller's: all f for which twice the hits, less f times what was said plus what
    is true, lies within so many standard deviations of 0.

    Args:
      counts: (labels, 2, 2) noisy counts.
      noise: standard deviation on each count.
      scatter: variance of that difference over which records were drawn for judging, all together
        (`dpal.training.headline_variance`).

    Source: Fieller (1954), "Some problems in interval estimation".
    """
    hits, whole = ratio_of(counts, records=0)
    # blur_of_f1 at f, as a polynomial in f.
    share = len(counts) * (noise**2 + 1 / 12)
    low, high = _fieller(hits, whole, (scatter + 4 * share, -8 * share, 6 * share))
    value = _ratio(hits, whole)
    deviation = math.sqrt(scatter + blur_of_f1(value, len(counts), noise))
    return Interval(
        value=value, low=low, high=high, standard_error=min(1.0, deviation / max(1.0, whole))
    )


def noisy_recalls(counts: Counts, *, noise: float, group_records: int = 1) -> list[Interval]:
    """Share of the records with a label of which a model says it, for each label.

    Args:
      counts: (labels, 2, 2) noisy counts.
      noise: standard deviation on each count.
      group_records: of one group, at most; they are taken to be right and wrong together, which
        is the worst there is.
    """
    return [
        _recall(float(missed), float(said), noise, group_records) for missed, said in counts[:, 1]
    ]


def _recall(missed: float, said: float, noise: float, group_records: int) -> Interval:
    whole, blurred = missed + said, noise**2 + 1 / 12
    drawn = group_records * max(0.0, whole)  # of which each is said with one chance
    # (1 - p) said - p missed: its variance is drawn p (1 - p) + blurred ((1 - p)^2 + p^2).
    low, high = _fieller(said, whole, (blurred, drawn - 2 * blurred, 2 * blurred - drawn))
    value = _ratio(said, whole)
    variance = drawn * value * (1 - value) + blurred * ((1 - value) ** 2 + value**2)
    return Interval(
        value=value,
        low=low,
        high=high,
        standard_error=min(1.0, math.sqrt(variance) / max(1.0, whole)),
    )


def ratio_of(counts: Counts, *, records: int) -> tuple[float, float]:
    """The headline as a ratio: twice the hits, and what was said plus what is true.

    Args:
      counts: (classes, classes) or (labels, 2, 2) counts, noisy or not.
      records: that they count; of classes each is said and is true once.
    """
    if counts.ndim == 2:
        return 2.0 * float(np.trace(counts)), 2.0 * records
    mistakes = float(counts[:, 0, 1].sum() + counts[:, 1, 0].sum())
    hits = 2.0 * float(counts[:, 1, 1].sum())
    return hits, hits + mistakes


def _ratio(part: float, whole: float) -> float:
    """A share within [0, 1]; a half where noise leaves nothing to divide by."""
    return min(1.0, max(0.0, part / whole)) if whole >= 1 else 0.5


def _fieller(
    part: float, whole: float, variance: tuple[float, float, float]
) -> tuple[float, float]:
    """All p within [0, 1] for which part - p whole is within 1.96 of its standard deviations of 0.

    Args:
      part: noisy.
      whole: noisy.
      variance: of part - p whole, by its coefficients of 1, p and p^2.
    """
    square = QUANTILE**2
    leading = whole**2 - square * variance[2]
    middle = part * whole + square * variance[1] / 2
    constant = part**2 - square * variance[0]
    if not (leading > 0 and whole > 0):  # noise leaves nothing to divide by: all is possible
        return 0.0, 1.0
    half = math.sqrt(max(0.0, middle**2 - leading * constant))
    ends = ((middle - half) / leading, (middle + half) / leading)
    return min(1.0, max(0.0, ends[0])), min(1.0, max(0.0, ends[1]))
