"""What a released model is worth, as tables: beside the most frequent answer, class by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.reports.report import Table
from dpal.reports.validation_figures import (
    AUC,
    BALANCED,
    against_majority,
    class_figures,
    figure_in,
    is_protected,
    percent,
)


def worth_table(phase: Mapping[str, Any]) -> Table:
    """Figures of a model beside those of always giving the most frequent answer.

    Args:
      phase: metrics of the phase whose model is released, with what the most frequent answer
        reaches.
    """
    rows = []
    if (compared := against_majority(phase)) is not None:
        rows.append((compared.headline, percent(compared.value), percent(compared.majority)))
    # Of every class the most frequent answer finds all records or none, and it ranks nobody.
    usual = {BALANCED: ("balanced accuracy", _balanced_usual(phase)), AUC: ("macro AUC", 0.5)}
    for name, (words, chance) in usual.items():
        if (value := figure_in(phase, name)) is not None:
            rows.append((words, percent(value), percent(chance)))
    columns = ("validation", "this model", "always the most frequent answer")
    return Table("Beside the most frequent answer", columns, tuple(rows))


def classes_table(phase: Mapping[str, Any], names: Sequence[str]) -> Table:
    """Recall and AUC of every class or label.

    Args:
      phase: metrics of the phase whose model is released.
      names: in class order; numbers where there are none.
    """
    noisy, rows = is_protected(phase), []
    classes = class_figures(phase)
    ranked = any(about["auc"] is not None for about in classes)
    for number, about in enumerate(classes):
        name = names[number] if number < len(names) else str(number)
        recall = "-" if about["recall"] is None else percent(about["recall"])
        area = () if not ranked else ("-" if about["auc"] is None else percent(about["auc"]),)
        rows.append((name, f"{about['records']:,}", recall, *area))
    columns = ("class", "records, noisy" if noisy else "records", "recall")
    return Table("Class by class", (*columns, *(("AUC",) if ranked else ())), tuple(rows))


def worth_in_short(phase: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """What stands behind a headline: the most frequent answer, and the class found least often.

    Where records are protected, all of it is made of the noisy figures that were released.

    Args:
      phase: metrics of the phase whose model is released.
      names: in class order; numbers where there are none.

    Returns:
      None where that was not measured, or not released.
    """
    compared = against_majority(phase)
    if compared is None:
        return None
    classes, usual = class_figures(phase), "the most frequent answer"
    found = {
        names[number] if number < len(names) else str(number): about
        for number, about in enumerate(classes)
    }
    if classes and not compared.has_labels:
        usual = repr(max(found, key=lambda name: found[name]["records"]))
    parts = [f"always saying {usual} has {compared.headline} {percent(compared.majority)}"]
    if (balanced := figure_in(phase, BALANCED)) is not None:
        parts.append(f"the model's balanced accuracy is {percent(balanced)}")
    recalls = {name: about["recall"] for name, about in found.items()}
    known = {name: recall for name, recall in recalls.items() if recall is not None}
    if known:
        least = min(known, key=lambda name: known[name])
        parts.append(f"of {least!r} it finds {percent(known[least])}")
    noisy = " Figures are noisy, as these records are protected." if is_protected(phase) else ""
    moved = len(classes) == 2 or compared.has_labels
    more = " `dpal predict --threshold` finds more, or fewer." if moved and known else ""
    return f"Beside {compared.headline} {percent(compared.value)}: {'; '.join(parts)}.{noisy}{more}"


def calibration_words(calibration: Mapping[str, Any] | None, *, protected: bool) -> str | None:
    """How far probabilities can be trusted, before and after the temperature.

    Args:
      calibration: of the released model; None where no temperature was fitted.
      protected: whether the validation set is.

    >>> calibration_words({"error": 0.2, "error_after": 0.03, "temperature": 2.5, "records": 300},
    ...     protected=False)[:50]
    'Probabilities and how often they are right are 20.'
    """
    if protected:
        return (
            "No temperature was fitted to the model's probabilities: the validation set is "
            "protected, and a temperature would tell of its records."
        )
    if calibration is None:
        return None
    return (
        f"Probabilities and how often they are right are {percent(calibration['error'])} apart on "
        f"average (expected calibration error in 15 bins), at temperature "
        f"{calibration['temperature']:.3g} {percent(calibration['error_after'])}. That was fitted "
        f"on the same {calibration['records']:,} public records, which flatters it a little; "
        "`dpal predict` divides logits by it."
    )


def _balanced_usual(phase: Mapping[str, Any]) -> float:
    """Balanced accuracy of the most frequent answer: one class of all that occur, or a half."""
    compared, classes = against_majority(phase), class_figures(phase)
    if compared is None or compared.has_labels:
        return 0.5
    occurring = sum(about["recall"] is not None for about in classes)
    return 1 / max(1, occurring)
