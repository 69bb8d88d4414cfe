"""What a model is worth beside knowing nothing: the most frequent answer, and its classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.labels import UNKNOWN, Task
from dpal.training.metrics import (
    THRESHOLD,
    Floats,
    Labels,
    evaluation_metrics,
    ratio_parts,
    roc_auc_influence,
)

Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class ClassWorth:
    """Figures of one class, or of one label.

    Attributes:
      records: how many of the judged ones have it; noisy where those are protected.
      recall: share of these that were found; None where there are none.
      auc: area under the ROC curve against all others; None where there are not both, or where
        scores are protected and no histograms of them were released.
    """

    records: int
    recall: float | None
    auc: float | None


@dataclass(frozen=True, kw_only=True)
class ModelWorth:
    """What a model is worth on judged records, beside always giving the most frequent answer.

    Attributes:
      majority: headline figure (accuracy, or micro-F1 of several labels) of always giving the most
        frequent answer; of several labels, of each label.
      gain_standard_error: of how far the model's headline is above that, over which records were
        drawn for judging, and over the noise where they are protected.
      balanced_accuracy: mean recall of the classes; of several labels of both answers of each.
      auc: mean area under the ROC curve of the classes that can be ranked; None if none can.
      auc_standard_error: of that; None likewise.
      classes: one by one.
    """

    majority: float
    gain_standard_error: float
    balanced_accuracy: float
    auc: float | None
    auc_standard_error: float | None
    classes: tuple[ClassWorth, ...]


def model_worth(task: Task, probabilities: Floats, labels: Labels) -> ModelWorth:
    """Judges predictions on PUBLIC records; of private ones every figure would have to be paid for.

    Args:
      task: what a label is.
      probabilities: (n, classes); what is not finite counts as 0.
      labels: (n,) class numbers, or (n, classes) zeros and ones, -1 where not known.

    Raises:
      ParameterError: shapes do not belong together, or there is no record.

    Source:
      Difference of two ratios over the same records: their influences are subtracted, Cochran
      (1977), Sec. 6.4. Error of areas: DeLong, DeLong & Clarke-Pearson (1988), eq. 4 to 7.
    """
    evaluation_metrics(task, probabilities, labels)  # what does not belong together is refused
    sound = np.where(np.isfinite(probabilities), probabilities, 0.0)
    has, said, known = _answers(task, sound, labels)
    usual = _most_frequent(task, has, known)
    areas, influences = _areas(sound, has, known)
    ranked = [area for area in areas if area is not None]
    return ModelWorth(
        majority=_share(*ratio_parts(has, usual)),
        gain_standard_error=_gain_error(has, said, usual),
        balanced_accuracy=_balanced(task, has, said, known),
        auc=float(np.mean(ranked)) if ranked else None,
        auc_standard_error=_spread(influences / len(ranked)) if ranked else None,
        classes=tuple(
            ClassWorth(
                records=int(mine.sum()),
                recall=float(found[mine].mean()) if mine.any() else None,
                auc=area,
            )
            for mine, found, area in zip(has.T, said.T, areas, strict=True)
        ),
    )


def _answers(task: Task, sound: Floats, labels: Labels) -> tuple[Bools, Bools, Bools]:
    """What records have, what is said of them, and what is known, each (n, classes)."""
    if task is Task.SINGLE_LABEL:
        every = np.arange(sound.shape[1])
        has = labels[:, None] == every
        return has, sound.argmax(axis=1)[:, None] == every, np.ones_like(has)
    known = labels != UNKNOWN
    return labels == 1, (sound > THRESHOLD) & known, known


def _most_frequent(task: Task, has: Bools, known: Bools) -> Bools:
    """Who says of every record what most have, (n, classes)."""
    if task is Task.SINGLE_LABEL:
        return np.broadcast_to(np.arange(has.shape[1]) == has.sum(axis=0).argmax(), has.shape)
    common = has.sum(axis=0) > known.sum(axis=0) / 2
    return np.asarray(known & common)


def _gain_error(has: Bools, said: Bools, usual: Bools) -> float:
    """Standard error of the difference of two headlines on the same records."""
    return _spread(_influence(has, said) - _influence(has, usual))


def _influence(has: Bools, said: Bools) -> Floats:
    """How far each record moves a headline, to first order, (n,)."""
    hits, whole = ratio_parts(has, said)
    total = float(whole.sum())
    if not total:
        return np.zeros(len(has))
    return np.asarray((hits - hits.sum() / total * whole) / total)


def _spread(influences: Floats) -> float:
    count = len(influences)
    return math.sqrt(count / (count - 1) * float((influences**2).sum())) if count > 1 else 0.0


def _share(hits: Floats, whole: Floats) -> float:
    return float(hits.sum() / max(1.0, whole.sum()))


def _areas(sound: Floats, has: Bools, known: Bools) -> tuple[list[float | None], Floats]:
    """The area of every class that can be ranked, and how far each record moves their sum, (n,)."""
    areas: list[float | None] = []
    influences = np.zeros(len(sound))
    for scores, mine, judged in zip(sound.T, has.T, known.T, strict=True):
        if not 0 < mine.sum() < judged.sum():
            areas.append(None)
            continue
        area, moved = roc_auc_influence(scores[judged], mine[judged])
        areas.append(area)
        influences[judged] += moved
    return areas, influences


def _balanced(task: Task, has: Bools, said: Bools, known: Bools) -> float:
    recalls = []
    for mine, found, judged in zip(has.T, said.T, known.T, strict=True):
        if mine.any():
            recalls.append(found[mine].mean())
        if task is Task.MULTI_LABEL and (judged & ~mine).any():
            recalls.append(1 - found[judged & ~mine].mean())
    return float(np.mean(recalls)) if recalls else 0.0
