"""What a model is worth, beside scikit-learn and beside knowing nothing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import metrics as oracle

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.training.model_worth import best_temperature, calibration_error, model_worth

SINGLE, MULTI = Task.SINGLE_LABEL, Task.MULTI_LABEL
RNG = np.random.default_rng(3)
NAMES = ("a", "b", "c")
LOGITS = RNG.normal(0, 2, (4000, 3))
SURE = softmax(LOGITS, axis=1)
DRAWN = np.array([RNG.choice(3, p=row) for row in SURE])  # so that SURE is calibrated


def test_figures_of_classes_are_scikit_learns():
    found = model_worth(SINGLE, SURE, DRAWN, NAMES)
    said = SURE.argmax(axis=1)
    assert found.balanced_accuracy == pytest.approx(oracle.balanced_accuracy_score(DRAWN, said))
    area = oracle.roc_auc_score(DRAWN, SURE, multi_class="ovr", average="macro")
    assert found.auc == pytest.approx(area)
    recalls = oracle.recall_score(DRAWN, said, average=None)
    assert [each.recall for each in found.classes] == pytest.approx(recalls.tolist())
    assert found.majority == np.bincount(DRAWN).max() / 4000
    assert sum(each.records for each in found.classes) == 4000


def test_figures_of_labels_leave_out_what_nobody_knows():
    labels = RNG.integers(-1, 2, (300, 3))
    guesses = RNG.random((300, 3))
    found = model_worth(MULTI, guesses, labels, NAMES)
    for number, each in enumerate(found.classes):
        known = labels[:, number] >= 0
        true, said = labels[known, number], guesses[known, number]
        assert each.auc == pytest.approx(oracle.roc_auc_score(true, said))
        assert each.recall == pytest.approx(oracle.recall_score(true, said > 0.5))
    changed = np.where(labels < 0, 1 - guesses, guesses)
    assert model_worth(MULTI, changed, labels, NAMES) == found


def test_who_always_says_the_same_is_no_better_than_the_majority():
    labels = np.array([0] * 80 + [1] * 20)
    same = np.tile([0.9, 0.1], (100, 1))
    found = model_worth(SINGLE, same, labels, NAMES[:2])
    assert (found.headline, found.majority, found.balanced_accuracy) == (0.8, 0.8, 0.5)
    assert found.is_below_majority
    right = np.where(labels[:, None] == [0, 1], 0.9, 0.1)
    assert not model_worth(SINGLE, right, labels, NAMES[:2]).is_below_majority
    often = np.array([[1, 0]] * 9 + [[0, 1]])
    assert model_worth(MULTI, often * 0.8, often, NAMES[:2]).majority == pytest.approx(0.9)


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_temperature_undoes_what_was_done_to_logits(factor):
    """Of 4,000 labels drawn from the model the temperature is known to a few percent."""
    hotter = softmax(LOGITS * factor, axis=1)
    assert best_temperature(SINGLE, hotter, DRAWN) == pytest.approx(factor, rel=0.1)
    drawn = (RNG.random(LOGITS.shape) < expit(LOGITS)).astype(np.int64)
    assert best_temperature(MULTI, expit(LOGITS * factor), drawn) == pytest.approx(factor, rel=0.1)


def test_calibration_error_is_the_mean_gap_of_bins():
    probabilities = np.array([[0.95, 0.05], [0.95, 0.05], [0.65, 0.35], [0.65, 0.35]])
    labels = np.array([0, 0, 0, 1])  # right: all of 0.95, half of 0.65
    expected = (2 * 0.05 + 2 * 0.15) / 4
    assert calibration_error(SINGLE, probabilities, labels) == pytest.approx(expected)
    overconfident = model_worth(SINGLE, softmax(4 * LOGITS, axis=1), DRAWN, NAMES)
    assert overconfident.calibration_error > 0.1
    assert overconfident.calibrated_error < 0.04
    assert calibration_error(SINGLE, SURE, DRAWN) < 0.04


def test_shapes_belong_together():
    with pytest.raises(ParameterError):
        model_worth(SINGLE, SURE, DRAWN[:3], NAMES)
    with pytest.raises(ParameterError):
        model_worth(SINGLE, SURE, DRAWN, NAMES[:2])
