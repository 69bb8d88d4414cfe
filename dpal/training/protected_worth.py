"""What a model is worth on protected records, from their noisy counts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpal.errors import ParameterError
from dpal.training.model_worth import ClassWorth, ModelWorth
from dpal.training.protected_figures import Counts, Floats, Interval

_KNOWN = 2.0  # a noisy number of records is one where it passes so many of its deviations
_ROUNDED = 1 / 12  # variance that rounding adds to each count


def worth_of_classes(
    counts: Counts,
    *,
    records: int,
    noise: float,
    group_records: int = 1,
    area: Interval | None = None,
) -> ModelWorth:
    """What noisy confusion counts say of a model; nothing more is read.

    The most frequent class is that of the largest noisy row, which is a little more than what
    always saying it reaches: a model is rather called no better than that.

    Args:
      counts: (classes, classes) noisy counts, rows are true classes; as they were released.
      records: of the validation set; public.
      noise: standard deviation on each count.
      group_records: of one group, at most; they are taken to go together, which is the worst.
      area: under the ROC curve of two classes, where it was released.

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
    least = max(1.0, _KNOWN * noise * math.sqrt(len(counts)))
    classes = tuple(
        ClassWorth(records=max(0, int(row)), recall=_share(found, row, least), auc=None)
        for row, found in zip(rows, right, strict=True)
    )
    return ModelWorth(
        majority=_in_unit(rows[usual] / records),
        gain_standard_error=math.sqrt(sampling + blurred),
        balanced_accuracy=_mean([each.recall for each in classes]),
        auc=None if area is None else area.value,
        auc_standard_error=None if area is None else _error(area),
        classes=classes,
    )


def worth_of_labels(
    counts: Counts,
    *,
    records: int,
    noise: float,
    headline_error: float,
    group_records: int = 1,
    areas: Sequence[Interval] = (),
    macro: Interval | None = None,
) -> ModelWorth:
    """What noisy counts of several labels say of a model; nothing more is read.

    Args:
      counts: (labels, 2, 2) noisy counts, by truth and answer; as they were released.
      records: of the validation set; public.
      noise: standard deviation on each count.
      headline_error: standard error of the model's micro-F1.
      group_records: of one group, at most; they are taken to go together, which is the worst.
      areas: under the ROC curve of each label, where they were released.
      macro: their mean.
    """
    rows = counts.sum(axis=2).astype(np.float64)
    majority, error = _usual_answers(rows, records=records, noise=noise)
    least = max(1.0, _KNOWN * noise * math.sqrt(2))
    recalls = [
        [_share(right, row, least) for right, row in zip(np.diag(label), both, strict=True)]
        for label, both in zip(counts, rows, strict=True)
    ]
    return ModelWorth(
        majority=majority,
        # Both go together in a way that counts do not tell: their errors are added.
        gain_standard_error=headline_error + math.sqrt(group_records) * error,
        balanced_accuracy=_mean([recall for both in recalls for recall in both]),
        auc=None if macro is None else macro.value,
        auc_standard_error=None if macro is None else _error(macro),
        classes=tuple(
            ClassWorth(
                records=max(0, int(has)),
                recall=recall,
                auc=areas[label].value if areas else None,
            )
            for label, ((_, has), (_, recall)) in enumerate(zip(rows, recalls, strict=True))
        ),
    )


def _usual_answers(rows: Floats, *, records: int, noise: float) -> tuple[float, float]:
    """Micro-F1 of giving every label's more frequent answer, and its standard error.

    Without a label that most records have it is 0, and known. Else every record adds to hits and
    to what is said and true by its labels; over which records were drawn, labels are taken to go
    together, which is the worst.
    """
    without, has = rows.T
    said = has > without
    hits, whole = 2 * has[said].sum(), rows[said].sum() + has.sum()
    if not said.any() or not whole >= 1:
        return 0.0, 0.0
    figure = _in_unit(hits / whole)
    share = np.clip(has / np.maximum(1.0, without + has), 0.0, 1.0)
    moves = np.where(said, 2 - figure, figure)
    sampled = math.sqrt(records) * float(moves @ np.sqrt(share * (1 - share)))
    # Two cells make each of the sums of rows.
    weights = np.where(said, (2 - 2 * figure) ** 2 + figure**2, figure**2)
    blurred = 2 * (noise**2 + _ROUNDED) * float(weights.sum())
    return figure, min(1.0, math.sqrt(sampled**2 + blurred) / whole)


def _share(part: float, whole: float, least: float) -> float | None:
    return _in_unit(part / whole) if whole > least else None


def _mean(recalls: Sequence[float | None]) -> float:
    known = [recall for recall in recalls if recall is not None]
    return float(np.mean(known)) if known else 0.0


def _error(area: Interval) -> float:
    """Standard error of an area, with what bins may hide."""
    return max(area.standard_error, (area.high - area.low) / 4)


def _in_unit(value: float) -> float:
    return float(min(1.0, max(0.0, value)))
