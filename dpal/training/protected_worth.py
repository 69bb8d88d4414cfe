"""What a model is worth on protected records, beside the most frequent answer.

Read off the noisy counts that were released of them, and off nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpal.errors import ParameterError
from dpal.training.gain_over_majority import ClassWorth, ModelWorth
from dpal.training.noisy_metrics import Counts, Floats, Interval

_KNOWN = 2.0  # a noisy number of records is one where it passes so many of its deviations
_ROUNDED = 1 / 12  # variance that rounding adds to each count


def worth_of_classes(
    counts: Counts, *, records: int, noise: float, group_records: int = 1
) -> ModelWorth:
    """Of records that have one class each.

    The most frequent class is that of the largest noisy row, which is a little more than what
    always saying it reaches: a model is rather called no better than that.

    Args:
      counts: (classes, classes) noisy counts, rows are true classes; as they were released.
      records: of the validation set; public.
      noise: standard deviation on each count.
      group_records: of one group, at most; they are taken to go together, which is the worst.

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
    sampling = group_records * max(0.0, better + worse - (better - worse) ** 2) / records
    blurred = 2 * others * (noise**2 + _ROUNDED) / records**2
    least = _least_known(len(counts), noise)
    recalls = [_share(found, row, least) for row, found in zip(rows, right, strict=True)]
    return ModelWorth(
        majority=_in_unit(rows[usual] / records),
        gain_standard_error=math.sqrt(sampling + blurred),
        balanced_accuracy=_mean(recalls),
        auc=None,
        auc_standard_error=None,
        classes=tuple(
            ClassWorth(records=max(0, int(row)), recall=recall, auc=None)
            for row, recall in zip(rows, recalls, strict=True)
        ),
    )


def worth_of_labels(
    counts: Counts, headline: Interval, *, noise: float, group_records: int = 1
) -> ModelWorth:
    """Of records that have several labels.

    How mistakes of a model and of the most frequent answers go together is in no count, so that
    the error of the difference is the sum of both errors, which is the most it can be.

    Args:
      counts: (labels, 2, 2) noisy counts; as they were released.
      headline: micro-F1 by them.
      noise: standard deviation on each count.
      group_records: of one group, at most; they are taken to go together, which is the worst.
    """
    majority, error = _usual_answers(counts, noise, group_records)
    least = _least_known(2, noise)
    # Of each label the records that have it and are found, and those that have not and are spared.
    has, without = (
        [_share(float(row[answer]), float(row.sum()), least) for row in counts[:, answer]]
        for answer in (1, 0)
    )
    return ModelWorth(
        majority=majority,
        gain_standard_error=headline.standard_error + error,
        balanced_accuracy=_mean([*has, *without]),
        auc=None,
        auc_standard_error=None,
        classes=tuple(
            ClassWorth(records=max(0, int(row.sum())), recall=recall, auc=None)
            for row, recall in zip(counts[:, 1], has, strict=True)
        ),
    )


def _usual_answers(counts: Counts, noise: float, group_records: int) -> tuple[float, float]:
    """Micro-F1 of giving each label's most frequent answer, and its standard error."""
    without, has = counts.sum(axis=2).astype(np.float64).T
    common = has > without
    hits, whole = 2 * has[common].sum(), has.sum() + (has + without)[common].sum()
    if not common.any() or whole < 1:
        return 0.0, 0.0
    value = _in_unit(hits / whole)
    # What a record adds to hits - value whole by one label, with it and without it.
    by_has: Floats = np.where(common, 2 - 2 * value, -value)
    by_without: Floats = np.where(common, -value, 0.0)
    squares = np.maximum(0.0, has * by_has**2 + without * by_without**2)
    # As if all labels of a record went together.
    sampling = group_records * float(np.sqrt(squares).sum()) ** 2
    blurred = 2 * (noise**2 + _ROUNDED) * float((by_has**2 + by_without**2).sum())
    return value, min(1.0, math.sqrt(sampling + blurred) / float(whole))


def _least_known(counts: int, noise: float) -> float:
    """From how many records on a sum of noisy counts is one."""
    return max(1.0, _KNOWN * noise * math.sqrt(counts))


def _share(part: float, whole: float, least: float) -> float | None:
    return _in_unit(part / whole) if whole > least else None


def _mean(recalls: Sequence[float | None]) -> float:
    known = [recall for recall in recalls if recall is not None]
    return float(np.mean(known)) if known else 0.0


def _in_unit(value: float) -> float:
    return float(min(1.0, max(0.0, value)))
