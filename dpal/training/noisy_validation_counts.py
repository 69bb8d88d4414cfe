"""What is released of a phase's model on protected records, and the figures that follow from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.events import NoisyFigures
from dpal.accounting.validation_count_sensitivity import MeasuredCounts
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.mechanisms.gaussian_counts import gaussian_counts, gaussian_sum
from dpal.randomness import BitSource
from dpal.training.gain_over_majority import ModelWorth
from dpal.training.headline_variance import SpreadUnit, spread_of, spread_unit, squared_residuals
from dpal.training.metrics import headline_terms
from dpal.training.noisy_metrics import (
    Counts,
    Floats,
    Interval,
    confusion_counts,
    label_counts,
    noisy_accuracy,
    noisy_f1,
    noisy_recalls,
)
from dpal.training.protected_worth import worth_of_classes, worth_of_labels
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
      groups: whose records they are, where more than one of a group may be measured; else None.
      group_records: that are measured of one group at most.
    """

    records: int
    noise: float
    counts: Counts
    spread: float | None = None
    scores: Counts | None = None
    groups: int | None = None
    group_records: int = 1

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
        if self.groups is not None:
            told |= {"groups": self.groups, "group_records": self.group_records}
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
        spread, scores, groups = (told.get(name) for name in ("spread", "scores", "groups"))
        return cls(
            records=int(told["records"]),
            noise=float(told["noise"]),
            counts=np.array(told["counts"], dtype=np.int64),
            spread=None if spread is None else float(spread),
            scores=None if scores is None else np.array(scores, dtype=np.int64),
            groups=None if groups is None else int(groups),
            group_records=int(told.get("group_records", 1)),
        )


def draw_counts(
    probabilities: Floats,
    labels: NDArray[np.integer],
    event: NoisyFigures,
    *,
    task: Task,
    counted: MeasuredCounts,
    owners: NDArray[np.int64] | None = None,
    rng: BitSource,
) -> ReleasedCounts:
    """Counts all records, and adds the noise of an event to everything that leaves.

    Args:
      probabilities: (n, classes or labels) a model's answers to all validation records.
      labels: (n,) or (n, labels) theirs.
      event: how much noise; its sensitivity is that of `counted`.
      task: what a label is.
      counted: what is counted.
      owners: (n,) number of each record's group, from 0; None where each is by itself.
      rng: source of the noise.
    """
    single, together = task is Task.SINGLE_LABEL, counted.group_records
    if owners is None and together > 1:
        raise ParameterError("several records of a group are measured, and whose they are is open")
    if owners is not None and np.bincount(owners, minlength=1).max() > together:
        raise ParameterError("more records of a group are measured than it is charged for")
    private = (confusion_counts if single else label_counts)(probabilities, labels)
    released = ReleasedCounts(
        records=len(labels),
        noise=event.noise,
        counts=gaussian_counts(private, event, rng=rng),
        groups=None if owners is None or together == 1 else int(owners.max()) + 1,
        group_records=together,
    )
    if counted.has_spread:
        hits, whole = headline_terms(task, probabilities, labels)
        spread = spread_of(hits, whole, _unit(released), owners=owners)
        released = replace(released, spread=gaussian_sum(spread, event, rng=rng))
    if counted.auc:
        # Of two classes the second is the label.
        binned = score_counts(
            probabilities[:, 1:] if single else probabilities,
            labels[:, None] if single else labels,
        )
        released = replace(released, scores=gaussian_counts(binned, event, rng=rng))
    return released


def headline_of(released: ReleasedCounts) -> tuple[str, Interval]:
    """The figure by which phases are compared: its name, and its interval."""
    counts, records, noise = released.counts, released.records, released.noise
    if counts.ndim == 2:
        scatter = None if released.spread is None else _scatter(released)
        return "accuracy", noisy_accuracy(counts, records=records, noise=noise, scatter=scatter)
    return "micro_f1", noisy_f1(counts, noise=noise, scatter=_scatter(released))


def worth_of(released: ReleasedCounts) -> ModelWorth:
    """What the model is worth beside the most frequent answer, by the same counts."""
    counts, noise, together = released.counts, released.noise, released.group_records
    if counts.ndim == 2:
        records = released.records
        worth = worth_of_classes(counts, records=records, noise=noise, group_records=together)
    else:
        headline = headline_of(released)[1]
        worth = worth_of_labels(counts, headline, noise=noise, group_records=together)
    areas = _areas(released)
    if not any(area.is_told for area in areas):
        return worth
    mean = macro_area(areas)
    # Of two classes either is ranked as the other.
    of_each = areas * (len(worth.classes) // len(areas))
    return replace(
        worth,
        auc=mean.value,
        auc_standard_error=mean.interval.standard_error,
        classes=tuple(
            replace(one, auc=area.value if area.is_told else None)
            for one, area in zip(worth.classes, of_each, strict=True)
        ),
    )


def further_figures(released: ReleasedCounts) -> Iterator[tuple[str, Interval]]:
    """Intervals of all other figures that counts tell."""
    if released.counts.ndim == 3:
        recalls = noisy_recalls(
            released.counts, noise=released.noise, group_records=released.group_records
        )
        for label, recall in enumerate(recalls):
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
    return [
        area_under_curve(binned, noise=released.noise, group_records=released.group_records)
        for binned in scores
    ]


def _scatter(released: ReleasedCounts) -> float:
    """Variance of the headline's residual over which records were drawn."""
    unit = _unit(released)
    if released.spread is not None:
        return unit.square * max(0.0, released.spread)
    # Of one label counts tell it themselves.
    return max(
        0.0, float((released.counts * squared_residuals(unit.figure, released.counts)).sum())
    )


def _unit(released: ReleasedCounts) -> SpreadUnit:
    """In what the spread is counted."""
    return spread_unit(
        released.counts,
        records=released.records,
        noise=released.noise,
        groups=released.groups,
        group_records=released.group_records,
    )
