"""The area under the ROC curve from noisy counts of records by bins of a model's score.

Bins are equally wide in log-odds and the same for every model, so that no record decides on them.
Records of one bin count as ties; how much that can hide is part of the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.validation_count_sensitivity import SCORE_BINS
from dpal.planning.measured_phases import QUANTILE
from dpal.training.noisy_metrics import Counts, Floats, Interval

_WIDTH = 0.4  # of a bin in log-odds: 32 reach from 0.25 % to 99.75 %, and the outer ones beyond
_LOG_ODDS = _WIDTH * (np.arange(1, SCORE_BINS) - SCORE_BINS / 2)
EDGES: Floats = 1 / (1 + np.exp(-_LOG_ODDS))  # (bins - 1,), between two bins each; one is 0.5
_TOLD = 4.0  # standard deviations of noise by which both kinds of records must be seen


@dataclass(frozen=True, kw_only=True)
class Area:
    """An area under the curve of binned scores.

    Attributes:
      value: the area; a half where too few records stand out of the noise.
      sampling: its variance over which records were drawn for judging.
      blurred: its variance by the noise.
      hidden: by how much the area of scores that are not binned may differ at most.
    """

    value: float
    sampling: float
    blurred: float
    hidden: float

    @property
    def is_told(self) -> bool:
        """Whether it is anything but open."""
        return self.hidden < 0.5

    @property
    def interval(self) -> Interval:
        """The area, with an interval that counts sampling, noise, and what bins may hide."""
        error = math.sqrt(self.sampling + self.blurred)
        half = QUANTILE * error + self.hidden
        return Interval(
            value=self.value,
            low=max(0.0, self.value - half),
            high=min(1.0, self.value + half),
            standard_error=error,
            hidden=self.hidden,
        )


def score_counts(scores: Floats, labels: NDArray[np.integer]) -> Counts:
    """Counts records by each of their labels and the bin of a model's score for it.

    Every record is in one count for each label that is known of it, and in none for others.

    Args:
      scores: (n, labels) probabilities; what is not finite counts as 0.
      labels: (n, labels) zeros and ones, -1 where not known.

    Returns:
      (labels, 2, bins): whether a record has the label, and the bin. Private.
    """
    sound = np.where(np.isfinite(scores), scores, 0.0)
    bins = np.digitize(sound, EDGES)
    cells = np.where(labels == 1, SCORE_BINS, 0) + bins
    counts = [
        np.bincount(cell[label >= 0], minlength=2 * SCORE_BINS)
        for cell, label in zip(cells.T, labels.T.astype(np.int64), strict=True)
    ]
    return np.stack(counts).astype(np.int64).reshape(-1, 2, SCORE_BINS)


def area_under_curve(counts: Counts, *, noise: float, group_records: int = 1) -> Area:
    """The area under the ROC curve by the trapezoid rule, from noisy counts.

    Its variance over records is that of a two-sample rank statistic; that by the noise is exact to
    second order, as the area is linear in the counts of either kind but for their totals.

    Args:
      counts: (2, bins) noisy counts, without and with the label.
      noise: standard deviation on each.
      group_records: of one group, at most; they are taken to go together, which is the worst.

    Source: DeLong, DeLong & Clarke-Pearson (1988), "Comparing the areas under two or more
    correlated receiver operating characteristic curves".
    """
    without, has = counts.astype(np.float64)
    variance = noise**2 + 1 / 12
    least = _TOLD * math.sqrt(variance * SCORE_BINS)
    negative, positive = float(without.sum()), float(has.sum())
    if not min(negative, positive) > max(1.0, least):
        return Area(value=0.5, sampling=0.0, blurred=0.0, hidden=0.5)
    beyond = np.tri(SCORE_BINS, k=-1) + np.eye(SCORE_BINS) / 2  # [i, j]: of bin i above bin j
    # Of each bin with the label the share below it; of each without, the share above.
    below, above = beyond @ without / negative, has @ beyond / positive
    area = float(has @ below / positive)
    by_has, by_without = (below - area) / positive, (above - area) / negative
    sampling = group_records * float(has @ by_has**2 + without @ by_without**2)
    together = (beyond - below[:, None] - above[None, :] + area) / (positive * negative)
    blurred = variance * float((by_has**2).sum() + (by_without**2).sum())
    blurred += variance**2 * float((together**2).sum())
    ties = float(has @ without) / (positive * negative)
    return Area(
        value=min(1.0, max(0.0, area)),
        sampling=max(0.0, sampling),
        blurred=blurred,
        hidden=min(0.5, max(0.0, ties / 2)),
    )


def macro_area(areas: Sequence[Area]) -> Area:
    """The mean area of several labels, whose records are the same.

    Sampling errors are added up as if labels went together, which is the worst there is; noise is
    independent.
    """
    count = len(areas)
    return Area(
        value=sum(area.value for area in areas) / count,
        sampling=(sum(math.sqrt(area.sampling) for area in areas) / count) ** 2,
        blurred=sum(area.blurred for area in areas) / count**2,
        hidden=sum(area.hidden for area in areas) / count,
    )
