"""What is released of a phase's model on protected records, and the figures that follow from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.events import NoisyFigures
from dpal.accounting.measured_counts import MeasuredCounts
from dpal.labels import Task
from dpal.mechanisms.gaussian_counts import gaussian_counts, gaussian_sum
from dpal.randomness import BitSource
from dpal.training.headline_spread import spread_of, spread_unit, squared_residuals
from dpal.training.metrics import headline_terms
from dpal.training.model_worth import ModelWorth
from dpal.training.noisy_label_worth import noisy_label_worth
from dpal.training.protected_figures import (
    Counts,
    Floats,
    Interval,
    confusion_counts,
    label_counts,
    noisy_accuracy,
    noisy_f1,
    noisy_recalls,
    noisy_worth,
)
from dpal.training.score_histograms import Area, area_under_curve, macro_area, score_counts


@dataclass(frozen=True, kw_only=True)
class ReleasedCounts:
    """Noisy counts of a phase.

    Attributes:
      records: of the validation set; public.
      noise: standard deviation on each count.
      counts: (classes, classes) by class and answer, or (labels, 2, 2).
      spread: of the headline, in the unit that `counts` suggest; None where they tell it.
      scores: (labels, 2, bins) by label and score, or (1, 2, bins) of two classes; None where no
        area under the curve is asked for.
    """

    records: int
    noise: float
    counts: Counts
    spread: float | None = None
    scores: Counts | None = None

    def to_json(self) -> str:
        """As text; what there is not is not in it."""
        told: dict[str, Any] = {
            "records": self.records,
            "noise": self.noise,
            "counts": self.counts.tolist(),
        }
        if self.spread is not None:
            told["spread"] = self.spread
        if self.scores is not None:
            told["scores"] = self.scores.tolist()
        return json.dumps(told)

    @classmethod
    def from_json(cls, text: str) -> ReleasedCounts:
        """Reads what `to_json` wrote.

        Raises:
          ValueError: it is no such text.
          KeyError: likewise.
          TypeError: likewise.
        """
        told: Mapping[str, Any] = json.loads(text)
        spread, scores = told.get("spread"), told.get("scores")
        return cls(
            records=int(told["records"]),
            noise=float(told["noise"]),
            counts=np.array(told["counts"], dtype=np.int64),
            spread=None if spread is None else float(spread),
            scores=None if scores is None else np.array(scores, dtype=np.int64),
        )


def draw_counts(
    probabilities: Floats,
    labels: NDArray[np.integer],
    event: NoisyFigures,
    *,
    task: Task,
    counted: MeasuredCounts,
    records: int,
    rng: BitSource,
) -> ReleasedCounts:
    """Counts all records, and adds the noise of an event to everything that leaves.

    Args:
      probabilities: (n, classes or labels) a model's answers to all validation records.
      labels: (n,) or (n, labels) theirs.
      event: how much noise; its sensitivity is that of `counted`.
      task: what a label is.
      counted: what is counted.
      records: of the validation set, as is public.
      rng: source of the noise.
    """
    single = task is Task.SINGLE_LABEL
    private = (confusion_counts if single else label_counts)(probabilities, labels)
    counts = gaussian_counts(private, event, rng=rng)
    spread = None
    if counted.has_spread:
        unit = spread_unit(counts, records=records, noise=event.noise)
        hits, whole = headline_terms(task, probabilities, labels)
        spread = gaussian_sum(spread_of(hits, whole, unit), event, rng=rng)
    scores = None
    if counted.auc:
        # Of two classes the second is the label.
        binned = score_counts(
            probabilities[:, 1:] if single else probabilities,
            labels[:, None] if single else labels,
        )
        scores = gaussian_counts(binned, event, rng=rng)
    return ReleasedCounts(
        records=records, noise=event.noise, counts=counts, spread=spread, scores=scores
    )


def headline_of(released: ReleasedCounts) -> tuple[str, Interval]:
    """The figure by which phases are compared: its name, and its interval."""
    counts, records, noise = released.counts, released.records, released.noise
    if counts.ndim == 2:
        return "accuracy", noisy_accuracy(counts, records=records, noise=noise)
    return "micro_f1", noisy_f1(counts, noise=noise, scatter=_scatter(released))


def worth_of(released: ReleasedCounts) -> ModelWorth:
    """What the model is worth beside the most frequent answer, by the same counts."""
    counts, noise = released.counts, released.noise
    if counts.ndim == 2:
        worth = noisy_worth(counts, records=released.records, noise=noise)
    else:
        worth = noisy_label_worth(counts, headline_of(released)[1], noise=noise)
    areas = _areas(released)
    if not any(area.is_told for area in areas):
        return worth
    together = macro_area(areas)
    # Of two classes either is ranked as the other.
    of_each = areas * (len(worth.classes) // len(areas))
    return replace(
        worth,
        auc=together.value,
        auc_standard_error=together.interval.standard_error,
        classes=tuple(
            replace(one, auc=area.value if area.is_told else None)
            for one, area in zip(worth.classes, of_each, strict=True)
        ),
    )


def further_figures(released: ReleasedCounts) -> Iterator[tuple[str, Interval]]:
    """Intervals of all other figures that counts tell."""
    if released.counts.ndim == 3:
        for label, recall in enumerate(noisy_recalls(released.counts, noise=released.noise)):
            yield f"recall/class_{label}", recall
    if released.scores is None:
        return
    areas = _areas(released)
    yield "macro_auc", macro_area(areas).interval
    if released.counts.ndim == 3:
        for label, area in enumerate(areas):
            yield f"auc/class_{label}", area.interval


def _areas(released: ReleasedCounts) -> list[Area]:
    """The area of each label, or the one of two classes; none where no scores were released."""
    scores = () if released.scores is None else released.scores
    return [area_under_curve(binned, noise=released.noise) for binned in scores]


def _scatter(released: ReleasedCounts) -> float:
    """Variance of the headline's residual over which records were drawn."""
    unit = spread_unit(released.counts, records=released.records, noise=released.noise)
    if released.spread is not None:
        return unit.square * max(0.0, released.spread)
    # Of one label counts tell it themselves.
    return max(0.0, float((released.counts * squared_residuals(unit.figure)).sum()))
