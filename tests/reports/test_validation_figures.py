"""How phases compare on the validation set, and what is called a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpal.reports.plan_and_phase_tables import validation_table
from dpal.reports.validation_figures import (
    against_best_before,
    against_majority,
    figures_in,
    headline_key,
    released_metrics,
    tracked_figures,
    worthless,
)
from dpal.reports.worth_tables import classes_table, worth_in_short, worth_table


def phase(number: int, accuracy: float, records: int | None = 400) -> dict[str, Any]:
    """Metrics of a phase; None as earlier versions wrote them, without the set's size."""
    metrics = {
        "phase": number,
        "labels": 100 * (number + 1),
        "validation_accuracy": accuracy,
        "campaign_epsilon": 2.0 * (number + 1),
    }
    if records is not None:
        error = float(np.sqrt(accuracy * (1 - accuracy) / records))
        metrics |= {"validation_records": float(records), "validation_standard_error": error}
    return metrics


def test_a_phase_is_compared_with_the_best_before_it():
    phases = [phase(0, 0.7), phase(1, 0.9), phase(2, 0.8), phase(3, 0.89), phase(4, 0.95)]
    assert against_best_before(phases, 0) is None
    told = [against_best_before(phases, number) for number in range(1, 5)]
    assert [compared.best for compared in told if compared] == [0, 1, 1, 1]
    assert [round(compared.gain, 3) for compared in told if compared] == [0.2, -0.1, -0.01, 0.05]
    assert [compared.is_worse for compared in told if compared] == [False, True, True, False]
    # Two standard errors are about four points here.
    assert [compared.is_loss for compared in told if compared] == [False, True, False, False]
    assert {compared.records for compared in told if compared} == {400}


def test_what_earlier_versions_measured_is_compared_without_an_error():
    phases = [phase(0, 0.9, None), phase(1, 0.8, None)]
    compared = against_best_before(phases, 1)
    assert compared is not None
    assert (compared.standard_error, compared.records) == (None, None)
    assert compared.is_loss
    assert "-10.00" in compared.words()


def test_noise_is_seldom_called_a_loss():
    """Two models as good as each other, judged on records of their own: the widest noise there is.

    Twice the standard error is passed with probability 0.0228. Of 20,000 pairs more than 0.0261 are
    flagged by chance with probability 0.001 (3.1 standard deviations of that share).
    """
    generator = np.random.default_rng(20261123)
    shares = generator.binomial(2000, 0.85, size=(20_000, 2)) / 2000
    flagged = [
        against_best_before([phase(0, first, 2000), phase(1, second, 2000)], 1)
        for first, second in shares
    ]
    share = np.mean([compared is not None and compared.is_loss for compared in flagged])
    assert 0.019 < share < 0.0261


def test_costs_are_of_all_phases_and_figures_of_the_released_one():
    phases = [phase(0, 0.7), phase(1, 0.9), phase(2, 0.8)]
    shown = released_metrics(phases, 1)
    assert shown["validation_accuracy"] == 0.9
    assert (shown["labels"], shown["campaign_epsilon"]) == (300, 6.0)
    assert headline_key(phases[0]) == "accuracy"
    assert headline_key({"validation_micro_f1": 0.5, "validation_macro_f1": 0.4}) == "micro_f1"


@pytest.mark.parametrize("released", [0, 1])
def test_the_table_marks_what_is_released(released):
    table = validation_table([phase(0, 0.7), phase(1, 0.6)], released)
    marked = ["released" in row[0] for row in table.rows]
    assert marked == [number == released for number in range(2)]
    assert "-10.00" in " ".join(table.rows[1])


def judged(value: float, majority: float, error: float, **more: Any) -> dict[str, Any]:
    """Metrics of a phase that was judged beside the most frequent answer."""
    return {
        **phase(0, value),
        "validation_majority": majority,
        "validation_gain_standard_error": error,
        "validation_balanced_accuracy": 0.5,
        **more,
    }


@pytest.mark.parametrize(
    ("value", "majority", "error", "better"),
    [
        (0.665, 0.77, 0.02, False),
        (0.77, 0.77, 0.0, False),
        (0.80, 0.77, 0.02, False),  # by less than two standard errors
        (0.82, 0.77, 0.02, True),
    ],
)
def test_a_model_has_to_be_better_than_the_most_frequent_answer(value, majority, error, better):
    told = judged(value, majority, error)
    compared = against_majority(told)
    assert compared is not None and compared.is_better is better
    assert (worthless(told) is None) is better
    if not better:
        said = str(worthless(told))
        assert "77.00 %" in said and "400 records" in said
        assert ("noise" in said) == (value > majority)


def test_rare_labels_have_to_be_ranked_as_well():
    """Saying yes at random has a micro-F1 above that of always saying no, which is 0."""
    labels = {"validation_micro_f1": 0.2, "validation_macro_auc_standard_error": 0.01}
    told = judged(0.0, 0.0, 0.01) | labels
    del told["validation_accuracy"]
    assert worthless(told | {"validation_macro_auc": 0.7}) is None
    assert "51.00 %" in str(worthless(told | {"validation_macro_auc": 0.51}))
    silent = told | {"validation_micro_f1": 0.0, "validation_macro_auc": 0.8}
    assert "80.00 %" in str(worthless(silent)), "its probabilities may be of use"


def test_nothing_is_said_of_what_earlier_versions_measured():
    assert against_majority(phase(0, 0.1)) is None
    assert worthless(phase(0, 0.1)) is None
    assert classes_table(phase(0, 0.1), ()).rows == ()


def test_phases_of_one_label_are_compared_by_accuracy_alone():
    told = judged(0.9, 0.4, 0.01, validation_macro_auc=0.7)
    assert figures_in(told) == {"accuracy": 0.9}
    labels = {"validation_micro_f1": 0.5, "validation_macro_auc": 0.7}
    assert list(figures_in(labels).values()) == [0.5, 0.7]


def test_classes_are_told_by_name_and_tracked_by_number():
    classes = [
        {"records": 90, "recall": 1.0, "auc": 0.7},
        {"records": 0, "recall": None, "auc": None},
    ]
    told = judged(0.9, 0.9, 0.0, validation_classes=classes, validation_macro_auc=0.7)
    assert classes_table(told, ["calm"]).rows == (
        ("calm", "90", "100.00 %", "70.00 %"),
        ("1", "0", "-", "-"),
    )
    assert [row[1:] for row in worth_table(told).rows] == [
        ("90.00 %", "90.00 %"),
        ("50.00 %", "100.00 %"),
        ("70.00 %", "50.00 %"),
    ]
    tracked = tracked_figures(told)
    assert tracked["validation_recall/class_0"] == 1.0
    assert "validation_recall/class_1" not in tracked
    assert all(isinstance(value, float) for value in tracked.values())
    noisy = told | {"validation_low": 0.1, "validation_high": 0.9}
    assert "noisy" in classes_table(noisy, ()).columns[1]


def test_the_headline_stands_beside_what_it_hides():
    classes = [
        {"records": 826, "recall": 0.99, "auc": 0.8},
        {"records": 143, "recall": 0.29, "auc": 0.8},
    ]
    told = judged(0.88, 0.8525, 0.01, validation_classes=classes)
    said = str(worth_in_short(told, ["calm", "ill"]))
    for fact in ("88.00 %", "'calm'", "85.25 %", "50.00 %", "'ill'", "29.00 %", "--threshold"):
        assert fact in said
    assert "99.00 %" not in said and "noisy" not in said
    three = told | {"validation_classes": [*classes, {"records": 0, "recall": None, "auc": None}]}
    assert "--threshold" not in str(worth_in_short(three, ()))


def test_of_protected_records_only_released_figures_are_told():
    assert worth_in_short(phase(0, 0.8), ["calm", "ill"]) is None
    told = judged(0.88, 0.85, 0.01, validation_low=0.8, validation_high=0.9)
    del told["validation_balanced_accuracy"]
    said = str(worth_in_short(told, ["calm", "ill"]))
    assert "noisy" in said and said.count("%") == 2
    assert "calm" not in said and "ill" not in said


def test_a_model_that_is_as_good_as_the_most_frequent_answer_is_seldom_let_pass():
    """Twice the standard error is passed with chance 0.0228.

    Of 20,000 more than 0.0261 pass by chance with probability 0.001; none would if all were
    flagged, and half if noise were forgotten.
    """
    generator = np.random.default_rng(5)
    gains = generator.normal(0, 0.02, 20_000)
    passed = np.mean([worthless(judged(0.5 + gain, 0.5, 0.02)) is None for gain in gains])
    assert 0.019 < passed < 0.0261
