"""How good predictions are, by task; the first figure of each is the one that is shown.

For several labels that is micro-F1: most records have few of the labels, so that the share
of right answers rewards a model that always says no, and F1 does not. It counts all answers
together; macro-F1 lets rare labels weigh as much as common ones, and the area under the
ROC curve judges the ranking of records, whatever the threshold.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.errors import ParameterError
from dpal.labels import THRESHOLD as THRESHOLD
from dpal.labels import Task

Floats = NDArray[np.float64]
Labels = NDArray[np.integer]
Counts = NDArray[np.int64]


def evaluation_metrics(task: Task, probabilities: Floats, labels: Labels) -> dict[str, float]:
    """Judges predictions by the figures of a task, the headline first.

    Args:
      task: what a label is.
      probabilities: (n, classes); what is not finite counts as 0.
      labels: (n,) class numbers, or (n, classes) zeros and ones, -1 where not known.

    Returns:
      accuracy; or micro_f1, macro_f1, subset_accuracy and, where any label both occurs and
      is absent, macro_auc. All in [0, 1]. A label that is not known is not judged: of a record
      that it is not known of, the others are.

    Raises:
      ParameterError: there is no record, or the shapes do not belong together.
    """
    single = task is Task.SINGLE_LABEL
    expected = probabilities.shape[:1] if single else probabilities.shape
    if probabilities.ndim != 2 or not len(labels) or labels.shape != expected:
        raise ParameterError(
            f"labels of shape {labels.shape} cannot judge {task} predictions of shape "
            f"{probabilities.shape}; give one label, or one row of labels, a record"
        )
    sound = np.where(np.isfinite(probabilities), probabilities, 0.0)
    if single:
        return {"accuracy": float((sound.argmax(axis=1) == labels).mean())}
    known, true = labels.astype(np.int64) >= 0, labels.astype(np.int64) == 1
    said = (sound > THRESHOLD) & known
    counts = np.stack([(said & true).sum(axis=0), said.sum(axis=0), true.sum(axis=0)])
    figures = {
        "micro_f1": float(f1(*counts.sum(axis=1))),
        "macro_f1": float(f1(*counts).mean()),
        "subset_accuracy": float((said == true).all(axis=1).mean()),
    }
    areas = [
        roc_auc(scores[judged], has[judged])
        for scores, has, judged in zip(sound.T, true.T, known.T, strict=True)
        if 0 < has[judged].sum() < judged.sum()
    ]
    return figures | ({"macro_auc": float(np.mean(areas))} if areas else {})


def headline_standard_error(task: Task, probabilities: Floats, labels: Labels) -> float:
    """Standard error of the task's headline figure, over which records were drawn for judging.

    Both headlines are ratios of sums over records: micro-F1 is twice the hits over what was said
    and what is true, and accuracy is the same of one label a record. The error is that of such a
    ratio to first order.

    Args:
      task: what a label is.
      probabilities: (n, classes); what is not finite counts as 0.
      labels: (n,) class numbers, or (n, classes) zeros and ones.

    Returns:
      0.0 where one record, or no label at all, says nothing of it.

    Source: Cochran (1977), Sampling Techniques, Sec. 2.11: the ratio estimator.
    """
    hits, whole = headline_terms(task, probabilities, labels)
    count, total = len(labels), float(whole.sum())
    if count < 2 or not total:
        return 0.0
    residuals = hits - hits.sum() / total * whole
    return float(np.sqrt(count / (count - 1) * (residuals**2).sum()) / total)


def headline_terms(task: Task, probabilities: Floats, labels: Labels) -> tuple[Floats, Floats]:
    """What each record adds to the headline figure, which is the ratio of both sums.

    Args:
      task: what a label is.
      probabilities: (n, classes); what is not finite counts as 0.
      labels: (n,) class numbers, or (n, classes) zeros and ones, -1 where not known.

    Returns:
      (n,) twice its hits, and (n,) what was said of it plus what is true.
    """
    sound = np.where(np.isfinite(probabilities), probabilities, 0.0)
    if task is Task.SINGLE_LABEL:
        return 2.0 * (sound.argmax(axis=1) == labels), np.full(len(labels), 2.0)
    known, true = labels.astype(np.int64) >= 0, labels.astype(np.int64) == 1
    return ratio_parts(true, (sound > THRESHOLD) & known)


def ratio_parts(true: NDArray[np.bool_], said: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """What each record adds to both sums whose ratio is the headline: micro-F1, or accuracy.

    Args:
      true: (n, classes) what records have: of one label each, a single one.
      said: (n, classes) what is said of them.

    Returns:
      Twice the hits, and what was said and what is true together, both (n,).
    """
    whole = said.sum(axis=1) + true.sum(axis=1)
    return 2.0 * (said & true).sum(axis=1), whole.astype(np.float64)


def f1(hits: Counts, said: Counts, true: Counts) -> Floats:
    """Harmonic mean of precision and recall; 0 for a label that neither occurs nor is said.

    Args:
      hits: (...,) how often a label was said and true.
      said: (...,) how often it was said.
      true: (...,) how often it was true.

    Returns:
      (...,) in [0, 1].
    """
    return np.asarray(2 * hits / np.maximum(1, said + true), dtype=np.float64)


def roc_auc(scores: Floats, true: NDArray[np.bool_]) -> float:
    """Chance that a record with the label is ranked above one without; ties count half.

    Args:
      scores: (n,) finite; any scale, since only their order counts.
      true: (n,) which records have the label; some, and not all.

    Returns:
      The area under the ROC curve, in [0, 1].

    Source: Hanley & McNeil (1982), the area under the ROC curve as a Mann-Whitney statistic.
    """
    ranks, count = scipy.stats.rankdata(scores), int(true.sum())
    above = float(ranks[true].sum()) - count * (count + 1) / 2
    return above / (count * (true.size - count))


def roc_auc_influence(scores: Floats, true: NDArray[np.bool_]) -> tuple[float, Floats]:
    """The same area, and how far each record moves it, to first order.

    Args:
      scores: (n,) finite.
      true: (n,) which records have the label; some, and not all.

    Returns:
      The area, and influences (n,) that sum to 0; the sum of their squares is its variance.

    Source: DeLong, DeLong & Clarke-Pearson (1988), structural components, eq. 4 and 5.
    """
    ranks, area = scipy.stats.rankdata(scores), roc_auc(scores, true)
    with_it, without = int(true.sum()), int((~true).sum())
    influences = np.empty(true.size)
    below = (ranks[true] - scipy.stats.rankdata(scores[true])) / without
    above = 1 - (ranks[~true] - scipy.stats.rankdata(scores[~true])) / with_it
    influences[true] = (below - area) / with_it
    influences[~true] = (above - area) / without
    return area, influences
