"""Figures on the validation set, by name, and how phases compare by them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PREFIX = "validation_"  # of the keys in a phase's metrics
RECORDS, STANDARD_ERROR = "records", "standard_error"  # how sure the headline is
LOW, HIGH = "low", "high"  # its 95 % interval, where records are protected: the noise counts, too
# In this order; the first that there is is the headline of its task.
_WORDS = {
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "subset_accuracy": "subset accuracy",
    "macro_auc": "macro AUC",
    "auc": "AUC",
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


def figure_words(name: str) -> str:
    """A figure's name for people.

    >>> figure_words("micro_f1")
    'micro-F1'
    """
    return _WORDS[name]


def headline(phase: Mapping[str, Any], *, prefix: str = _PREFIX) -> tuple[str, float]:
    """The figure that is shown where there is room for one: its name for people, its value."""
    return next(iter(figures_in(phase, prefix=prefix).items()))


def headline_key(phase: Mapping[str, Any]) -> str:
    """The name of that figure in a phase's metrics, without prefix: accuracy or micro_f1."""
    return next(name for name in _WORDS if _PREFIX + name in phase)


def named_interval(name: str, value: float, low: float, high: float) -> dict[str, float]:
    """A figure beside the headline, with its 95 % interval, as phases' figures have them."""
    return {name: value, f"{name}_{LOW}": low, f"{name}_{HIGH}": high}


def is_protected(phase: Mapping[str, Any]) -> bool:
    """Whether a phase was measured on protected records, by its metrics."""
    return _PREFIX + LOW in phase


def interval_words(phase: Mapping[str, Any]) -> str:
    """The 95 % interval of the headline figure of a phase that was measured on protected records.

    >>> interval_words({"validation_low": 0.7512, "validation_high": 0.7931})
    '75.12 % to 79.31 %'
    """
    return " to ".join(percent(float(phase[_PREFIX + end])) for end in (LOW, HIGH))


def further_intervals(phase: Mapping[str, Any]) -> dict[str, str]:
    """The 95 % intervals of figures beside the headline that have any, by what they are of.

    >>> further_intervals({"validation_auc_low": 0.81, "validation_auc_high": 0.88})
    {'AUC, 95 %': '81.00 % to 88.00 %'}
    """
    return {
        f"{words}, 95 %": " to ".join(
            percent(float(phase[f"{_PREFIX}{name}_{end}"])) for end in (LOW, HIGH)
        )
        for name, words in _WORDS.items()
        if f"{_PREFIX}{name}_{LOW}" in phase
    }


def protection_words(phase: Mapping[str, Any]) -> str:
    """What figures of a phase are to the records that they were measured on."""
    if is_protected(phase):
        return "the validation set, which is protected: figures have noise, and intervals count it"
    return "the validation set, which is not protected"


def most_labels(phase: Mapping[str, Any]) -> int:
    """Labels that a campaign bought at most by the end of a phase, by its metrics."""
    return int(phase.get("most_labels", phase["labels"]))  # as planned: before queries shared a cap


def released_metrics(phases: Sequence[Mapping[str, Any]], released: int) -> dict[str, Any]:
    """What a campaign cost in all of its phases, with the figures of the one that is released.

    Args:
      phases: metrics of the finished phases.
      released: number of the phase whose model is the campaign's.
    """
    chosen = phases[released].items()
    figures = {name: value for name, value in chosen if name.startswith(_PREFIX)}
    return {**phases[-1], **figures}


@dataclass(frozen=True, kw_only=True)
class PhaseComparison:
    """A phase's headline figure beside the best of the phases before it.

    Attributes:
      best: number of that phase.
      gain: by how much the figure is higher; below 0 it is worse.
      standard_error: of the gain; None where earlier versions measured.
      records: of the validation set; None likewise.
    """

    best: int
    gain: float
    standard_error: float | None
    records: int | None

    @property
    def is_worse(self) -> bool:
        """Whether the phase is below an earlier one, by however little."""
        return self.gain < 0

    @property
    def is_loss(self) -> bool:
        """Whether it is below by more than two standard errors, which noise seldom is."""
        return self.is_worse and -self.gain > 2 * (self.standard_error or 0.0)

    def words(self) -> str:
        """By how much, in points, and how sure that is.

        >>> PhaseComparison(best=1, gain=-0.081, standard_error=0.02, records=300).words()
        '-8.10 points, worse than phase 1 (standard error 2.00, 300 records)'
        """
        points = f"{100 * self.gain:+.2f} points"
        if not self.is_worse:
            return points
        below = f"worse than phase {self.best}"
        if self.standard_error is None:
            return f"{points}, {below}"
        if not self.is_loss:
            below = f"within the noise of phase {self.best}"
        error = f"standard error {100 * self.standard_error:.2f}, {self.records:,} records"
        return f"{points}, {below} ({error})"


def against_best_before(phases: Sequence[Mapping[str, Any]], phase: int) -> PhaseComparison | None:
    """Compares a phase with the best of those before it; None for the first.

    The standard error is that of two models whose mistakes are independent. Two phases' models make
    many of the same mistakes, so that it is rather too large: noise is called a loss less often.
    """
    if phase == 0:
        return None
    values = [headline(finished)[1] for finished in phases[: phase + 1]]
    best = max(range(phase), key=lambda earlier: (values[earlier], earlier))
    both = [phases[number].get(_PREFIX + STANDARD_ERROR) for number in (best, phase)]
    records = phases[phase].get(_PREFIX + RECORDS)
    known = None not in both and records is not None
    return PhaseComparison(
        best=best,
        gain=values[phase] - values[best],
        standard_error=math.hypot(*map(float, both)) if known else None,  # type: ignore[arg-type]
        records=int(records) if known else None,  # type: ignore[arg-type]
    )


def percent(value: float) -> str:
    """A figure in [0, 1] as it is printed."""
    return f"{100 * value:.2f} %"
