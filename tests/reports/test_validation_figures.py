"""How phases compare on the validation set, and what is called a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpal.reports.summary import validation_table
from dpal.reports.validation_figures import (
    against_best_before,
    headline_key,
    released_metrics,
)


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
