"""How far a model's probabilities can be trusted, and the one number that mends them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dpal.labels import UNKNOWN, Task
from dpal.training.metrics import Floats, Labels

# Models of earlier versions, in registries, import it from here.
from dpal.training.predictions import at_temperature as at_temperature

_BINS = 15
_TINY = 1e-12
_COLDEST, _HOTTEST = 0.05, 20.0


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A temperature and what it changes, on the PUBLIC records that it was fitted on.

    Attributes:
      temperature: what logits are divided by.
      error: expected calibration error in 15 bins, before: how far what the model is sure of
        and how often it is right are apart on average.
      error_after: the same after.
      records: how many it was fitted on.
    """

    temperature: float
    error: float
    error_after: float
    records: int


def fit_temperature(task: Task, probabilities: Floats, labels: Labels) -> Calibration:
    """Temperature scaling on PUBLIC records; of private ones it would tell.

    Args:
      task: what a label is.
      probabilities: (n, classes).
      labels: (n,) class numbers, or (n, classes) zeros and ones, -1 where not known.

    Source: Guo, Pleiss, Sun & Weinberger (2017), "On calibration of modern neural networks",
      Sec. 2 and 4.2; of several labels one temperature, and every answer counts by itself.
    """
    temperature = best_temperature(task, probabilities, labels)
    mended = at_temperature(task, probabilities, temperature)
    return Calibration(
        temperature=temperature,
        error=calibration_error(task, probabilities, labels),
        error_after=calibration_error(task, mended, labels),
        records=len(labels),
    )


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
