"""What a model is worth, beside scikit-learn and beside knowing nothing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import metrics as oracle

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.training.gain_over_majority import ModelWorth, model_worth
from dpal.training.metrics import Floats, Labels, evaluation_metrics, roc_auc, roc_auc_influence

SINGLE, MULTI = Task.SINGLE_LABEL, Task.MULTI_LABEL
RNG = np.random.default_rng(3)
LOGITS = RNG.normal(0, 2, (4000, 3))
SURE = softmax(LOGITS, axis=1)
DRAWN = np.array([RNG.choice(3, p=row) for row in SURE])


def headline(task: Task, guesses: Floats, labels: Labels) -> float:
    return next(iter(evaluation_metrics(task, guesses, labels).values()))


def test_figures_of_classes_are_scikit_learns():
    found = model_worth(SINGLE, SURE, DRAWN)
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
    found = model_worth(MULTI, guesses, labels)
    for number, each in enumerate(found.classes):
        known = labels[:, number] >= 0
        true, said = labels[known, number], guesses[known, number]
        assert each.auc == pytest.approx(oracle.roc_auc_score(true, said))
        assert each.recall == pytest.approx(oracle.recall_score(true, said > 0.5))
    changed = np.where(labels < 0, 1 - guesses, guesses)
    assert model_worth(MULTI, changed, labels) == found


def test_who_always_says_the_same_gains_nothing():
    labels = np.array([0] * 80 + [1] * 20)
    same = np.tile([0.9, 0.1], (100, 1))
    found = model_worth(SINGLE, same, labels)
    assert (found.majority, found.balanced_accuracy, found.auc) == (0.8, 0.5, 0.5)
    assert found.gain_standard_error == found.auc_standard_error == 0.0
    often, guesses = np.array([[1, 0]] * 9 + [[0, 1]]), np.full((10, 2), 0.8)
    assert model_worth(MULTI, guesses, often).majority == pytest.approx(0.9)
    rare = np.zeros((10, 2), np.int64)
    rare[0] = 1
    assert model_worth(MULTI, guesses, rare).majority == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("task", [SINGLE, MULTI])
def test_the_error_of_the_gain_is_the_bootstraps(task):
    """Of 800 resamples a deviation is known to 2.5 %; ten percent is four times that."""
    labels = DRAWN if task is SINGLE else (RNG.random(LOGITS.shape) < 0.3).astype(np.int64)
    blurred = labels * 0.4 + RNG.random(LOGITS.shape) / 2 if task is MULTI else SURE
    guesses, labels = np.asarray(blurred[:500], np.float64), labels[:500]
    found = model_worth(task, guesses, labels)
    gains, areas = [], []
    for _ in range(800):
        rows = RNG.integers(0, 500, 500)
        again = model_worth(task, guesses[rows], labels[rows])
        usual = _usual(found, task, labels[rows])
        gains.append(headline(task, guesses[rows], labels[rows]) - usual)
        areas.append(float(again.auc or 0.0))
    assert found.gain_standard_error == pytest.approx(np.std(gains), rel=0.1)
    assert found.auc_standard_error == pytest.approx(np.std(areas), rel=0.1)


def _usual(found: ModelWorth, task: Task, labels: Labels) -> float:
    """What the most frequent answer of the whole set reaches on a resample."""
    if task is SINGLE:
        return float((labels == np.argmax([each.records for each in found.classes])).mean())
    return 0.0


def test_an_area_and_its_influences_belong_together():
    """Leaving one record out moves an area by about its influence, times n / (n - 1) or so."""
    scores, true = RNG.normal(size=400).round(1), RNG.random(400) < 0.3
    area, moved = roc_auc_influence(scores, true)
    assert area == roc_auc(scores, true)
    assert moved.sum() == pytest.approx(0.0, abs=1e-12)
    left_out = [roc_auc(np.delete(scores, row), np.delete(true, row)) for row in range(400)]
    assert np.allclose(area - np.array(left_out), moved, rtol=0.02, atol=1e-6)


def test_what_is_not_finite_counts_as_nothing():
    broken = SURE.copy()
    broken[:10] = np.nan
    nothing = SURE.copy()
    nothing[:10] = 0.0
    assert model_worth(SINGLE, broken, DRAWN) == model_worth(SINGLE, nothing, DRAWN)


def test_shapes_belong_together():
    with pytest.raises(ParameterError):
        model_worth(SINGLE, SURE, DRAWN[:3])
    with pytest.raises(ParameterError):
        model_worth(MULTI, expit(LOGITS), DRAWN)
