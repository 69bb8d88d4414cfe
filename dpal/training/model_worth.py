"""What a model is worth beside knowing nothing: baselines, classes one by one, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from dpal.errors import ParameterError
from dpal.labels import UNKNOWN, Task
from dpal.training.metrics import THRESHOLD, Floats, Labels, evaluation_metrics, f1, roc_auc

_BINS = 15
_TINY = 1e-12
_COLDEST, _HOTTEST = 0.05, 20.0


@dataclass(frozen=True, kw_only=True)
class ClassWorth:
    """Figures of one class, or of one label.

    Attributes:
      name: of it.
      records: how many of the judged ones have it.
      recall: share of these that were found; None where there are none.
      auc: area under the ROC curve against all others; None without both sorts.
    """

    name: str
    records: int
    recall: float | None
    auc: float | None


@dataclass(frozen=True, kw_only=True)
class ModelWorth:
    """What a model is worth on judged records.

    Attributes:
      records: how many were judged.
      headline: its figure: accuracy, or micro-F1 of several labels.
      majority: the same figure of who always says what most records have.
      balanced_accuracy: mean recall of the classes; of several labels of both answers of each.
      auc: mean area under the ROC curve of the classes that can be ranked; None if none can.
      calibration_error: expected calibration error in 15 bins: how far what the model is sure of
        and how often it is right are apart on average.
      temperature: what logits should be divided by, so that probabilities fit best.
      calibrated_error: the calibration error after that.
      classes: one by one.
    """

    records: int
    headline: float
    majority: float
    balanced_accuracy: float
    auc: float | None
    calibration_error: float
    temperature: float
    calibrated_error: float
    classes: tuple[ClassWorth, ...]

    @property
    def is_below_majority(self) -> bool:
        """Whether saying the same of every record is as good or better."""
        return self.headline <= self.majority


def model_worth(
    task: Task, probabilities: Floats, labels: Labels, names: Sequence[str]
) -> ModelWorth:
    """Judges predictions on PUBLIC records; of private ones every figure would have to be paid for.

    Args:
      task: what a label is.
      probabilities: (n, classes).
      labels: (n,) class numbers, or (n, classes) zeros and ones, -1 where not known.
      names: of the classes or labels.

    Raises:
      ParameterError: shapes do not belong together, or nothing is known.

    Source:
      Calibration error and temperature: Guo, Pleiss, Sun & Weinberger (2017), "On calibration of
      modern neural networks", Sec. 2 and 4.2; of several labels every answer counts by itself.
    """
    figures = evaluation_metrics(task, probabilities, labels)
    if len(names) != probabilities.shape[1]:
        raise ParameterError(
            f"{len(names)} names are not those of {probabilities.shape[1]} classes"
        )
    if task is Task.SINGLE_LABEL:
        has = labels[:, None] == np.arange(len(names))
        said = probabilities.argmax(axis=1)[:, None] == np.arange(len(names))
        known = np.ones_like(has)
    else:
        known, has = labels != UNKNOWN, labels == 1
        said = (probabilities > THRESHOLD) & known
    classes = tuple(
        ClassWorth(
            name=name,
            records=int(mine.sum()),
            recall=float(found[mine].mean()) if mine.any() else None,
            auc=roc_auc(scores[judged], mine[judged]) if 0 < mine.sum() < judged.sum() else None,
        )
        for name, mine, found, scores, judged in zip(
            names, has.T, said.T, probabilities.T, known.T, strict=True
        )
    )
    areas = [each.auc for each in classes if each.auc is not None]
    temperature = best_temperature(task, probabilities, labels)
    return ModelWorth(
        records=len(labels),
        headline=next(iter(figures.values())),
        majority=_majority(task, has, known),
        balanced_accuracy=_balanced(task, has, said, known),
        auc=float(np.mean(areas)) if areas else None,
        calibration_error=calibration_error(task, probabilities, labels),
        temperature=temperature,
        calibrated_error=calibration_error(
            task, at_temperature(task, probabilities, temperature), labels
        ),
        classes=classes,
    )


def _majority(task: Task, has: np.ndarray, known: np.ndarray) -> float:
    """The headline of who says of every record what most have."""
    if task is Task.SINGLE_LABEL:
        return float(has.mean(axis=0).max())
    common = has.sum(axis=0) > known.sum(axis=0) / 2
    said = known & common
    return float(f1((said & has).sum(), said.sum(), has.sum()))


def _balanced(task: Task, has: np.ndarray, said: np.ndarray, known: np.ndarray) -> float:
    recalls = []
    for mine, found, judged in zip(has.T, said.T, known.T, strict=True):
        if mine.any():
            recalls.append(found[mine].mean())
        if task is Task.MULTI_LABEL and (judged & ~mine).any():
            recalls.append(1 - found[judged & ~mine].mean())
    return float(np.mean(recalls))


def calibration_error(task: Task, probabilities: Floats, labels: Labels) -> float:
    """Expected calibration error in 15 bins of equal width, in [0, 1].

    Of one label: of the most probable class. Of several: of the probability of each label.
    """
    if task is Task.SINGLE_LABEL:
        sure = probabilities.max(axis=1)
        right = probabilities.argmax(axis=1) == labels
    else:
        known = labels != UNKNOWN
        sure, right = probabilities[known], labels[known] == 1
    bins = np.minimum((sure * _BINS).astype(np.int64), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    apart = np.bincount(bins, weights=right - sure, minlength=_BINS)
    return float(np.abs(apart).sum() / max(1, counts.sum()))


def at_temperature(task: Task, probabilities: Floats, temperature: float) -> Floats:
    """Probabilities (n, classes) of logits that are divided by a temperature."""
    if task is Task.SINGLE_LABEL:
        logits = np.log(np.clip(probabilities, _TINY, 1))
        return np.asarray(scipy.special.softmax(logits / temperature, axis=1))
    logits = scipy.special.logit(np.clip(probabilities, _TINY, 1 - _TINY))
    return np.asarray(scipy.special.expit(logits / temperature))


def best_temperature(task: Task, probabilities: Floats, labels: Labels) -> float:
    """The temperature with the least cross-entropy on PUBLIC records, between 0.05 and 20."""

    def loss(logarithm: float) -> float:
        fitted = at_temperature(task, probabilities, float(np.exp(logarithm)))
        if task is Task.SINGLE_LABEL:
            chances = fitted[np.arange(len(labels)), labels]
        else:
            known = labels != UNKNOWN
            chances = np.where(labels == 1, fitted, 1 - fitted)[known]
        return float(-np.log(np.clip(chances, _TINY, 1)).mean())

    bounds = (np.log(_COLDEST), np.log(_HOTTEST))
    return float(np.exp(scipy.optimize.minimize_scalar(loss, bounds=bounds, method="bounded").x))
