"""Which public records are worth a label, by a released model: free, as it is post-processing.

Everything here reads public records and what a model says of them. Memory holds as many
candidates as are asked for, however many public records there are.

Source: Zhao, Papernot, Singh, Polyzotis & Odena (2019), "Improving differentially private
models with active learning", Sec. 3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, softmax

from dpal import check
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.public_selection import Uncertainty
from dpal.randomness import seeded

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST = -np.inf  # uncertainty of a record for which the model gives anything not finite


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """A batch of records as a model sees them.

    Attributes:
      rows: (n,) row numbers, ascending over the stream.
      embeddings: (n, width).
      logits: (n, classes).
    """

    rows: Rows
    embeddings: Floats
    logits: Floats


@dataclass(frozen=True, eq=False)
class Candidates:
    """The most uncertain public records, the most uncertain first; ties by row number.

    Attributes:
      rows: (n,) row numbers.
      uncertainty: (n,) falling.
      embeddings: (n, width).
      predicted: (n,) most probable class; for several labels 0.
    """

    rows: Rows
    uncertainty: Floats
    embeddings: Floats
    predicted: Rows


@dataclass(frozen=True, eq=False)
class ChosenRecords:
    """Public records that will be labeled.

    Attributes:
      rows: (n,) distinct row numbers, in the order in which they were chosen.
      clusters: (n,) the group each was chosen from; None where there are no groups.
      central: (n,) how many of its group lie nearer to the centre; None as above.
    """

    rows: Rows
    clusters: Rows | None = None
    central: Rows | None = None


def uncertainty(logits: Floats, kind: Uncertainty, *, task: Task) -> Floats:
    """How unsure a model is of each record; larger is less sure.

    Args:
      logits: (n, classes).
      kind: entropy of the probabilities (nats; for several labels the sum over them), or the
        margin between the two largest logits, negated.
      task: what logits mean.

    Returns:
      (n,) values; -infinity where a logit is not finite.

    Raises:
      ParameterError: the margin is asked for labels that are no rivals.
    """
    sound = np.asarray(np.isfinite(logits).all(axis=1))
    values = np.where(sound[:, None], logits, 0.0)
    if kind is Uncertainty.MARGIN:
        if task is Task.MULTI_LABEL:
            raise ParameterError(
                "uncertain_margin compares rival classes, and several labels of a record are none; "
                "use uncertain_entropy, or choice.uncertainty: entropy"
            )
        ordered = np.sort(values, axis=1)
        scores = ordered[:, -2] - ordered[:, -1]
    elif task is Task.MULTI_LABEL:
        chances = 1 / (1 + np.exp(-np.clip(values, -700, 700)))
        scores = (entr(chances) + entr(1 - chances)).sum(axis=1)
    else:
        scores = entr(softmax(values, axis=1)).sum(axis=1)
    return np.where(sound, scores, LEAST)


def most_uncertain(
    seen: Iterable[ModelOutputs], count: int, kind: Uncertainty, *, task: Task
) -> Candidates:
    """Keeps the most uncertain records of a stream.

    Args:
      seen: batches in the order of the file.
      count: records to keep.
      kind: of uncertainty.
      task: what logits mean.

    Raises:
      ParameterError: the stream has fewer records.
    """
    check.at_least(1, candidates=count)
    kept: Candidates | None = None
    for batch in seen:
        new = Candidates(
            batch.rows,
            uncertainty(batch.logits, kind, task=task),
            batch.embeddings,
            batch.logits.argmax(axis=1),
        )
        kept = _best(new if kept is None else _joined(kept, new), count)
    if kept is None or kept.rows.size < count:
        available = 0 if kept is None else kept.rows.size
        raise ParameterError(
            f"{count:,} of the public records are asked for and there are {available:,}; lower "
            "choice.labels or choice.candidates, or give more public records"
        )
    return kept


def random_choice(total: int, count: int, *, seed: int) -> ChosenRecords:
    """Draws distinct rows uniformly, repeatably: they are public.

    Args:
      total: public records.
      count: records to draw.
      seed: public.

    Raises:
      ParameterError: there are fewer.
    """
    if count > total:
        raise ParameterError(
            f"{count:,} labels are asked for and there are {total:,} public records; lower "
            "choice.labels, or give more public records"
        )
    drawn = seeded(seed, "random public records").choice(total, size=count, replace=False)
    return ChosenRecords(np.sort(drawn).astype(np.int64))


def _joined(kept: Candidates, other: Candidates) -> Candidates:
    return Candidates(
        np.concatenate([kept.rows, other.rows]),
        np.concatenate([kept.uncertainty, other.uncertainty]),
        np.concatenate([kept.embeddings, other.embeddings]),
        np.concatenate([kept.predicted, other.predicted]),
    )


def _best(all_: Candidates, count: int) -> Candidates:
    order = np.lexsort((all_.rows, -all_.uncertainty))[:count]
    return Candidates(
        all_.rows[order], all_.uncertainty[order], all_.embeddings[order], all_.predicted[order]
    )
