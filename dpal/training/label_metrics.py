"""How good predictions of several labels are: label by label, then averaged over the labels.

Every method is judged by this one module, because figures that are averaged over records
and figures that are averaged over labels do not belong into one table. Areas and average
precisions come from scores alone: of released yes or no answers they say nothing that the
balanced accuracy does not.

A label that no judged record has, or that all have, shows no ranking: it has no BAC, AUC or
AP, is left out of their means, and the number of labels that were counted is told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.errors import ParameterError
from dpal.labels import UNKNOWN
from dpal.training.metrics import THRESHOLD, Counts, Floats, f1, roc_auc

Bools = NDArray[np.bool_]
Answers = NDArray[np.floating | np.integer]  # 0 and 1; of floats also NaN: not known

_SAME = 1e-12  # mean BACs this near are one: rounding of a sum must not choose a threshold


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelFigures:
    """Figures of each label; `averages` puts them together.

    Attributes:
      records: (k,) on how many records a label was judged: those whose true label is known.
      positives: (k,) how many of these have it.
      said: (k,) for how many it was predicted.
      hits: (k,) for how many rightly so.
      auc: (k,) area under the ROC curve, ties count half; NaN without both sorts of records.
      average_precision: (k,) AP, where equal scores are one step; NaN likewise.
    """

    records: Counts
    positives: Counts
    said: Counts
    hits: Counts
    auc: Floats
    average_precision: Floats

    @property
    def judged(self) -> Bools:
        """Labels of which any record is known, shape (k,)."""
        return self.records > 0

    @property
    def ranked(self) -> Bools:
        """Labels that some known records have and others have not, shape (k,)."""
        return (self.positives > 0) & (self.positives < self.records)

    @property
    def acc(self) -> Floats:
        """Share of right answers, shape (k,); NaN where no record is known."""
        wrong = self.said + self.positives - 2 * self.hits
        return _share(self.records - wrong, self.records, self.judged)

    @property
    def bac(self) -> Floats:
        """Balanced accuracy: the mean of recall and specificity, shape (k,); NaN as `auc`."""
        negatives = self.records - self.positives
        rejected = negatives - (self.said - self.hits)
        recall = _share(self.hits, self.positives, self.ranked)
        return (recall + _share(rejected, negatives, self.ranked)) / 2

    @property
    def precision(self) -> Floats:
        """Share of predictions that were right, shape (k,); 0 if there was none."""
        return _share(self.hits, np.maximum(1, self.said), self.judged)

    @property
    def recall(self) -> Floats:
        """Share of a label's records that were found, shape (k,); 0 if there is none."""
        return _share(self.hits, np.maximum(1, self.positives), self.judged)

    @property
    def f1(self) -> Floats:
        """Harmonic mean of precision and recall, shape (k,); 0 if both are."""
        return np.where(self.judged, f1(self.hits, self.said, self.positives), np.nan)

    def averages(self) -> dict[str, float]:
        """Means over the labels, and figures of all answers together.

        Returns:
          All in [0, 1], but for the last:
          acc; bac, auc, map (absent where no label is ranked): means over labels;
          cp, cr: means over labels of precision and recall;
          cf1_mean: the mean over labels of F1; cf1_harmonic: the harmonic mean of cp and cr.
          Publications call either of them CF1;
          op, or, of1: precision, recall and F1 of all answers counted together;
          ranked_labels: how many labels bac, auc and map were averaged over.
        """
        judged, ranked = self.judged, self.ranked
        cp, cr = float(self.precision[judged].mean()), float(self.recall[judged].mean())
        hits, said, true = (counts.sum() for counts in (self.hits, self.said, self.positives))
        by_rank = {"bac": self.bac, "auc": self.auc, "map": self.average_precision}
        return {
            "acc": float(self.acc[judged].mean()),
            **{
                name: float(figures[ranked].mean())
                for name, figures in by_rank.items()
                if ranked.any()
            },
            "cp": cp,
            "cr": cr,
            "cf1_mean": float(self.f1[judged].mean()),
            "cf1_harmonic": 2 * cp * cr / (cp + cr) if cp + cr else 0.0,
            "op": float(hits / max(1, said)),
            "or": float(hits / max(1, true)),
            "of1": float(f1(hits, said, true)),
            "ranked_labels": float(ranked.sum()),
        }


def answers_in(labels: NDArray[np.integer]) -> Floats:
    """Labels (n, k) as what is judged here: NaN where one is not known."""
    return np.where(labels == UNKNOWN, np.nan, labels)


def label_figures(scores: Floats, labels: Answers, thresholds: Floats) -> LabelFigures:
    """Judges predictions of several labels.

    Args:
      scores: (n, k), higher says more surely that a record has the label; what is not finite
        counts as 0.
      labels: (n, k) zeros and ones; NaN where the truth is not known: not judged there.
      thresholds: (k,); a label is predicted where its score is above its threshold.

    Returns:
      Figures of each label. They do not depend on the order of the records, not even among
      equal scores.

    Raises:
      ParameterError: shapes do not belong together, a label is neither 0 nor 1 nor NaN, a
        threshold is NaN, or no label is known.

    Source:
      AUC: Hanley & McNeil (1982). CP, CR, OP, OR: Wang et al. (2016), "CNN-RNN".
    """
    sound, answered = _sound(scores, labels)
    if thresholds.shape != labels.shape[1:] or np.isnan(thresholds).any():
        raise ParameterError(
            f"thresholds of shape {thresholds.shape} do not decide on {labels.shape[1]} labels; "
            "give one number for each"
        )
    if not answered.any():
        raise ParameterError("no label of any record is known; there is nothing to judge")
    true, said = answered & (labels == 1), answered & (sound > thresholds)
    records, positives = answered.sum(axis=0), true.sum(axis=0)
    areas, precisions = np.full((2, labels.shape[1]), np.nan)
    for label in np.flatnonzero((positives > 0) & (positives < records)):
        rows = answered[:, label]
        ranking = sound[rows, label], true[rows, label]
        areas[label], precisions[label] = roc_auc(*ranking), average_precision(*ranking)
    return LabelFigures(
        records=records,
        positives=positives,
        said=said.sum(axis=0),
        hits=(said & true).sum(axis=0),
        auc=areas,
        average_precision=precisions,
    )


def average_precision(scores: Floats, true: Bools) -> float:
    """Mean precision over the recalls at which it is found; equal scores are one step.

    Otherwise the figure would depend on the order in which tied records are stored.

    Args:
      scores: (n,) finite; only their order counts.
      true: (n,) which records have the label; at least one.

    Returns:
      In (0, 1].

    Source: Zhu (2004), "Recall, precision and average precision"; without interpolation.
    """
    order = np.argsort(-scores)
    last = _last_of_equals(scores[order])
    hits = true[order].cumsum()[last]
    return float((np.diff(hits, prepend=0) * hits / (last + 1)).sum() / hits[-1])


def best_thresholds(scores: Floats, labels: Answers, *, per_label: bool) -> Floats:
    """The thresholds with the largest balanced accuracy on public records.

    Exact: every way to part the records by their scores is tried, and the threshold lies
    midway between the scores it parts. Of several best ones that nearest to 0.5 is taken.

    Args:
      scores: (n, k) probabilities; what is not finite counts as 0.
      labels: (n, k) zeros and ones of PUBLIC records, or labels that were released: those of
        private records would be read for free. NaN where there is no answer.
      per_label: one threshold for each label; otherwise one for all, which maximises the mean
        of their balanced accuracies.

    Returns:
      (k,) thresholds; 0.5 for a label without both sorts of answers (of one threshold for
      all: where every label is such).

    Raises:
      ParameterError: shapes do not belong together, or a label is neither 0 nor 1 nor NaN.
    """
    sound, answered = _sound(scores, labels)
    true = answered & (labels == 1)
    positives, negatives = true.sum(axis=0), (answered & ~true).sum(axis=0)
    usable = (positives > 0) & (negatives > 0)
    thresholds = np.full(labels.shape[1], THRESHOLD)
    # What saying yes to a record adds to its label's recall + specificity - 1.
    gains = np.where(true, 1 / np.maximum(1, positives), -1 / np.maximum(1, negatives))
    counted = answered & usable
    if per_label:
        for label in np.flatnonzero(usable):
            rows = counted[:, label]
            thresholds[label] = _best_cut(sound[rows, label], gains[rows, label])
    elif usable.any():
        thresholds[:] = _best_cut(sound[counted], gains[counted] / usable.sum())
    return thresholds


def _best_cut(scores: Floats, gains: Floats) -> float:
    """The threshold above which gains add up to most; saying yes to none is tried, too."""
    order = np.argsort(-scores)
    last = _last_of_equals(scores[order])
    above = scores[order][last]
    sums = gains[order].cumsum()[last]
    # Yes to all gains as little as yes to none, so that the last sum stands for both.
    below = np.append(above[1:], above[0])
    middles = below + (above - below) / 2
    # Between neighbours of floating point the middle rounds to one of them: the lower parts.
    cuts = np.where(middles < above, middles, below)
    cuts[-1], sums[-1] = max(above[0], THRESHOLD), 0.0
    best = cuts[sums >= sums.max() - _SAME]
    return float(best[np.abs(best - THRESHOLD).argmin()])


def _last_of_equals(ranked: Floats) -> NDArray[np.int64]:
    """Positions of sorted scores at which the next one differs."""
    return np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)


def _sound(scores: Floats, labels: Answers) -> tuple[Floats, Bools]:
    """Scores that can be ranked, and which labels are known, both (n, k)."""
    if scores.ndim != 2 or not scores.size or scores.shape != labels.shape:
        raise ParameterError(
            f"labels of shape {labels.shape} cannot judge scores of shape {scores.shape}; give "
            "one row of labels a record"
        )
    answered = ~np.isnan(labels)
    if not np.isin(labels[answered], (0, 1)).all():
        raise ParameterError("a label is 0, 1 or NaN where it is not known; others were given")
    return np.where(np.isfinite(scores), scores, 0.0).astype(np.float64), answered


def _share(part: Counts, whole: Counts, where: Bools) -> Floats:
    """(k,) shares; NaN elsewhere."""
    shares = np.full(len(part), np.nan)
    np.divide(part, whole, out=shares, where=where)
    return shares
