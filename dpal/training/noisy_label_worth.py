"""What noisy counts of several labels say a model is worth beside the most frequent answers."""

from __future__ import annotations

import math

import numpy as np

from dpal.training.model_worth import ClassWorth, ModelWorth
from dpal.training.protected_figures import Counts, Floats, Interval

_KNOWN = 2.0  # a noisy number of records is one where it passes so many of its deviations


def noisy_label_worth(
    counts: Counts, headline: Interval, *, noise: float, group_records: int = 1
) -> ModelWorth:
    """Reads it off released counts; nothing more is read.

    How mistakes of a model and of the most frequent answers go together is in no count, so that
    the error of the difference is the sum of both errors, which is the most it can be.

    Args:
      counts: (labels, 2, 2) noisy counts; as they were released.
      headline: micro-F1 by them.
      noise: standard deviation on each count.
      group_records: of one group, at most; they are taken to go together, which is the worst.
    """
    majority, error = _most_frequent(counts, noise, group_records)
    least = max(1.0, _KNOWN * noise * math.sqrt(2))
    recalls, classes = [], []
    for without, has in counts.astype(np.float64):
        found, spared = (
            min(1.0, max(0.0, right / total)) if (total := float(both.sum())) > least else None
            for right, both in ((has[1], has), (without[0], without))
        )
        recalls += [each for each in (found, spared) if each is not None]
        classes.append(ClassWorth(records=max(0, int(has.sum())), recall=found, auc=None))
    return ModelWorth(
        majority=majority,
        gain_standard_error=headline.standard_error + error,
        balanced_accuracy=float(np.mean(recalls)) if recalls else 0.0,
        auc=None,
        auc_standard_error=None,
        classes=tuple(classes),
    )


def _most_frequent(counts: Counts, noise: float, group_records: int) -> tuple[float, float]:
    """Micro-F1 of giving each label's most frequent answer, and its standard error."""
    without, has = counts.sum(axis=2).astype(np.float64).T
    common = has > without
    hits, whole = 2 * has[common].sum(), has.sum() + (has + without)[common].sum()
    if not common.any() or whole < 1:
        return 0.0, 0.0
    value = min(1.0, max(0.0, float(hits / whole)))
    # What a record adds to hits - value whole by one label, with it and without it.
    by_has: Floats = np.where(common, 2 - 2 * value, -value)
    by_without: Floats = np.where(common, -value, 0.0)
    squares = np.maximum(0.0, has * by_has**2 + without * by_without**2)
    # As if all labels of a record went together.
    sampling = group_records * float(np.sqrt(squares).sum()) ** 2
    blurred = 2 * (noise**2 + 1 / 12) * float((by_has**2 + by_without**2).sum())
    return value, min(1.0, math.sqrt(sampling + blurred) / float(whole))
