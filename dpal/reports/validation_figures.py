"""Figures on the validation set, by name, and how phases compare by them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PREFIX = "validation_"  # of the keys in a phase's metrics
RECORDS, STANDARD_ERROR = "records", "standard_error"  # how sure the headline is
LOW, HIGH = "low", "high"  # its 95 % interval, where records are protected: the noise counts, too
MAJORITY = "majority"  # the headline of always giving the most frequent answer
GAIN_ERROR = "gain_standard_error"  # of how far the model is above that
BALANCED, AUC, AUC_ERROR = "balanced_accuracy", "macro_auc", "macro_auc_standard_error"
CLASSES = "classes"  # records, recall and AUC of each, in class order
_ONE_LABEL = "accuracy"  # the headline where a record has one label
# In this order; the first that there is is the headline of its task.
_WORDS = {
    _ONE_LABEL: "accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "subset_accuracy": "subset accuracy",
    "macro_auc": "macro AUC",
}


def as_metrics(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures as they stand in a phase's metrics."""
    return {_PREFIX + name: value for name, value in figures.items()}


def tracked_figures(phase: Mapping[str, Any]) -> dict[str, float]:
    """All figures of a phase as numbers by name, those of single classes too."""
    figures = {
        name: float(value)
        for name, value in phase.items()
        if name.startswith(_PREFIX) and isinstance(value, float | int)
    }
    for number, about in enumerate(class_figures(phase)):
        for name in ("recall", "auc"):
            if about[name] is not None:
                figures[f"{_PREFIX}{name}/class_{number}"] = float(about[name])
    return figures


def figures_of_all(phase: Mapping[str, Any]) -> dict[str, float]:
    """The same by their plain names, such as accuracy, without those of single classes."""
    return {
        name.removeprefix(_PREFIX): value
        for name, value in tracked_figures(phase).items()
        if "/" not in name
    }


def class_figures(phase: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Records, recall and AUC of each class, in class order; none of earlier versions."""
    classes: Sequence[Mapping[str, Any]] = phase.get(_PREFIX + CLASSES, ())
    return classes


def figure_in(phase: Mapping[str, Any], name: str) -> float | None:
    """One figure of a phase, such as `BALANCED`; None where it was not measured."""
    value = phase.get(_PREFIX + name)
    return None if value is None else float(value)


def figures_in(phase: Mapping[str, Any], *, prefix: str = _PREFIX) -> dict[str, float]:
    """The figures of a phase that phases are compared by, by their names for people.

    The headline is the first. Where records have one label it is the only one: what else there is
    stands beside the most frequent answer (`dpal.reports.worth_tables`).

    Args:
      phase: its metrics; or, with prefix "", its record in a rehearsal.
      prefix: of the figures' keys.
    """
    one_label = prefix + _ONE_LABEL in phase
    return {
        words: float(phase[prefix + name])
        for name, words in _WORDS.items()
        if prefix + name in phase and (name == _ONE_LABEL or not one_label)
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


def interval_ends(name: str, low: float, high: float) -> dict[str, float]:
    """The 95 % interval of a figure beside the headline, as phases' figures have it."""
    return {f"{name}_{LOW}": low, f"{name}_{HIGH}": high}


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

    >>> further_intervals({"validation_macro_auc_low": 0.81, "validation_macro_auc_high": 0.88})
    {'macro AUC, 95 %': '81.00 % to 88.00 %'}
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


@dataclass(frozen=True, kw_only=True)
class MajorityComparison:
    """A model beside always giving the most frequent answer, and its ranking beside chance.

    Attributes:
      headline: what its figure is called.
      value: the figure.
      majority: the same of always giving the most frequent answer; of several labels, of each.
      standard_error: of the difference; where records are protected, with the noise.
      records: of the validation set.
      auc: mean area under the ROC curve, 0.5 by chance; None where nothing can be ranked, or
        scores are protected and their histograms were not released.
      auc_error: its standard error.
      has_labels: whether records have several labels. Of rare ones the most frequent answer, none
        at all, has a micro-F1 of 0, which every guess passes: there the ranking must be better
        than chance as well.
    """

    headline: str
    value: float
    majority: float
    standard_error: float
    records: int
    auc: float | None
    auc_error: float
    has_labels: bool

    @property
    def answers_better(self) -> bool:
        """Whether its answers are better by more than two standard errors."""
        return self.value - self.majority > 2 * self.standard_error

    @property
    def ranks_better(self) -> bool:
        """Whether it is known to rank records better than chance, by as much."""
        return self.auc is not None and self.auc - 0.5 > 2 * self.auc_error

    @property
    def is_better(self) -> bool:
        """Whether the model is known to be worth more than the most frequent answer."""
        unranked = self.has_labels and self.auc is not None and not self.ranks_better
        return self.answers_better and not unranked

    def words(self) -> str:
        """What a person should know of a model that is not better.

        >>> model = MajorityComparison(headline="accuracy", value=0.665, majority=0.77,
        ...     standard_error=0.02, records=333, auc=None, auc_error=0.0, has_labels=False)
        >>> for part in model.words().split(": "):
        ...     print(part)
        no better than always giving the most frequent answer
        accuracy 66.50 % against 77.00 % (standard error of the difference 2.00 points, 333 records)
        """
        if self.answers_better and not self.is_better:
            return (
                f"no better than chance at ranking records: {_WORDS[AUC]} "
                f"{percent(self.auc or 0.0)} against 50 % (standard error "
                f"{100 * self.auc_error:.2f} points, {self.records:,} records)"
            )
        beyond = " by more than noise" if self.value > self.majority else ""
        ranks = ""
        if self.ranks_better:
            ranks = (
                f"; it does rank records better than chance ({_WORDS[AUC]} "
                f"{percent(self.auc or 0.0)}), so that its probabilities may be of use"
            )
        return (
            f"no better than always giving the most frequent answer{beyond}: {self.headline} "
            f"{percent(self.value)} against {percent(self.majority)} (standard error of the "
            f"difference {100 * self.standard_error:.2f} points, {self.records:,} records){ranks}"
        )


def against_majority(phase: Mapping[str, Any]) -> MajorityComparison | None:
    """Compares a phase's model with the most frequent answer; None where that was not measured."""
    majority, error = figure_in(phase, MAJORITY), figure_in(phase, GAIN_ERROR)
    if majority is None or error is None:
        return None
    name, value = headline(phase)
    return MajorityComparison(
        headline=name,
        value=value,
        majority=majority,
        standard_error=error,
        records=int(phase[_PREFIX + RECORDS]),
        auc=figure_in(phase, AUC),
        auc_error=figure_in(phase, AUC_ERROR) or 0.0,
        has_labels=headline_key(phase) != _ONE_LABEL,
    )


def worthless(phase: Mapping[str, Any]) -> str | None:
    """One sentence on a released model that is no better than the most frequent answer.

    Args:
      phase: metrics of the phase whose model is released.

    Returns:
      None where it is better, or was measured by an earlier version.
    """
    compared = against_majority(phase)
    if compared is None or compared.is_better:
        return None
    return f"This model is {compared.words()}."


def percent(value: float) -> str:
    """A figure in [0, 1] as it is printed."""
    return f"{100 * value:.2f} %"
