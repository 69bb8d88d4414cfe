"""Temperature scaling: it undoes what was done to logits, and says by how much it helps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax

from dpal.labels import Task
from dpal.training.calibration import best_temperature, calibration_error, fit_temperature

SINGLE, MULTI = Task.SINGLE_LABEL, Task.MULTI_LABEL
RNG = np.random.default_rng(3)
LOGITS = RNG.normal(0, 2, (4000, 3))
SURE = softmax(LOGITS, axis=1)
DRAWN = np.array([RNG.choice(3, p=row) for row in SURE])  # so that SURE is calibrated


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_temperature_undoes_what_was_done_to_logits(factor):
    """Of 4,000 labels drawn from the model the temperature is known to a few percent."""
    hotter = softmax(LOGITS * factor, axis=1)
    assert best_temperature(SINGLE, hotter, DRAWN) == pytest.approx(factor, rel=0.1)
    drawn = (RNG.random(LOGITS.shape) < expit(LOGITS)).astype(np.int64)
    assert best_temperature(MULTI, expit(LOGITS * factor), drawn) == pytest.approx(factor, rel=0.1)


def test_labels_that_nobody_knows_do_not_count():
    drawn = (RNG.random(LOGITS.shape) < expit(LOGITS)).astype(np.int64)
    drawn[::3, 1] = -1
    known, other = expit(LOGITS), np.where(drawn < 0, 0.999, expit(LOGITS))
    assert fit_temperature(MULTI, known, drawn) == fit_temperature(MULTI, other, drawn)


def test_calibration_error_is_the_mean_gap_of_bins():
    probabilities = np.array([[0.95, 0.05], [0.95, 0.05], [0.65, 0.35], [0.65, 0.35]])
    labels = np.array([0, 0, 0, 1])  # right: all of 0.95, half of 0.65
    expected = (2 * 0.05 + 2 * 0.15) / 4
    assert calibration_error(SINGLE, probabilities, labels) == pytest.approx(expected)
    overconfident = fit_temperature(SINGLE, softmax(4 * LOGITS, axis=1), DRAWN)
    assert overconfident.error > 0.1
    assert overconfident.error_after < 0.04
    assert overconfident.records == 4000
    assert calibration_error(SINGLE, SURE, DRAWN) < 0.04
