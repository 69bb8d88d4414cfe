"""Figures on the validation set, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREFIX = "validation_"  # of the keys in a phase's metrics
# In this order; the first that there is is the headline of its task.
_WORDS = {
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "subset_accuracy": "subset accuracy",
    "macro_auc": "macro AUC",
}


def as_metrics(figures: Mapping[str, float]) -> dict[str, float]:
    """Figures as they stand in a phase's metrics."""
    return {_PREFIX + name: value for name, value in figures.items()}


def figures_in(phase: Mapping[str, Any], *, prefix: str = _PREFIX) -> dict[str, float]:
    """All figures of a phase by their names for people, the headline first.

    Args:
      phase: its metrics; or, with prefix "", its record in a rehearsal.
      prefix: of the figures' keys.
    """
    return {
        words: float(phase[prefix + name])
        for name, words in _WORDS.items()
        if prefix + name in phase
    }


def headline(phase: Mapping[str, Any], *, prefix: str = _PREFIX) -> tuple[str, float]:
    """The figure that is shown where there is room for one: its name for people, its value."""
    return next(iter(figures_in(phase, prefix=prefix).items()))


def percent(value: float) -> str:
    """A figure in [0, 1] as it is printed."""
    return f"{100 * value:.2f} %"
