"""A model's figures as they stand in the metrics of a phase, of whatever kind of run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dpal.labels import Task
from dpal.reports.validation_figures import (
    AUC,
    AUC_ERROR,
    BALANCED,
    CLASSES,
    GAIN_ERROR,
    MAJORITY,
    RECORDS,
    STANDARD_ERROR,
)
from dpal.training.gain_over_majority import ModelWorth, model_worth
from dpal.training.metrics import Floats, Labels, evaluation_metrics, headline_standard_error


def public_figures(task: Task, guesses: Floats, labels: Labels) -> dict[str, Any]:
    """Figures of a model on public records, the headline first.

    Args:
      task: what a label is.
      guesses: (n, classes) probabilities.
      labels: (n,) class numbers, or (n, classes) zeros and ones, -1 where not known.
    """
    return {
        **evaluation_metrics(task, guesses, labels),
        RECORDS: float(len(labels)),
        STANDARD_ERROR: headline_standard_error(task, guesses, labels),
        **worth_figures(model_worth(task, guesses, labels)),
    }


def worth_figures(worth: ModelWorth) -> Mapping[str, Any]:
    """What a model is worth, by the names of its figures."""
    ranking = {} if worth.auc is None else {AUC: worth.auc, AUC_ERROR: worth.auc_standard_error}
    return {
        MAJORITY: worth.majority,
        GAIN_ERROR: worth.gain_standard_error,
        BALANCED: worth.balanced_accuracy,
        **ranking,
        CLASSES: [asdict(each) for each in worth.classes],
    }
