from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as oracle

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.training.evaluation import evaluate, probabilities
from dpal.training.metrics import evaluation_metrics, headline_standard_error

MULTI = Task.MULTI_LABEL

shapes = st.tuples(st.integers(1, 30), st.integers(2, 6))


@settings(max_examples=60, deadline=None)
@given(st.data(), shapes)
def test_figures_of_several_labels_are_scikit_learns(data, shape):
    guesses = data.draw(
        arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.2, 0.5, 0.51, 1.0]))
    )
    labels = data.draw(arrays(np.int8, shape, elements=st.integers(0, 1)))
    found = evaluation_metrics(MULTI, guesses, labels)
    # scikit-learn takes int8 rows for something else than indicators in some places.
    true, said = labels.astype(np.int64), (guesses > 0.5).astype(np.int64)
    for average in ("micro", "macro"):
        expected = oracle.f1_score(true, said, average=average, zero_division=0)
        assert found[f"{average}_f1"] == pytest.approx(expected)
    assert found["subset_accuracy"] == pytest.approx(oracle.accuracy_score(true, said))
    both = [i for i in range(shape[1]) if 0 < true[:, i].mean() < 1]
    areas = [oracle.roc_auc_score(true[:, i], guesses[:, i]) for i in both]
    assert ("macro_auc" in found) == bool(areas)
    if areas:
        assert found["macro_auc"] == pytest.approx(np.mean(areas))
    assert next(iter(found)) == "micro_f1"  # the headline
    assert all(0 <= value <= 1 for value in found.values())


def test_one_label_gives_accuracy():
    guesses = np.array([[0.6, 0.4], [0.1, 0.9], [0.7, 0.3], [0.5, 0.5]])
    assert evaluation_metrics(Task.SINGLE_LABEL, guesses, np.array([0, 1, 1, 0])) == {
        "accuracy": 0.75
    }


def test_what_is_not_finite_is_not_said():
    guesses = np.array([[np.nan, 0.9], [np.inf, 0.2]])
    found = evaluation_metrics(MULTI, guesses, np.array([[1, 1], [0, 0]]))
    assert found == evaluation_metrics(
        MULTI, np.array([[0.0, 0.9], [0.0, 0.2]]), np.array([[1, 1], [0, 0]])
    )


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        (MULTI, np.zeros(3)),
        (MULTI, np.zeros((3, 1))),
        (MULTI, np.zeros((1, 2))),
        (Task.SINGLE_LABEL, np.zeros((3, 2))),
    ],
)
def test_labels_that_would_be_spread_over_predictions_are_refused(task, labels):
    """numpy would compare them all the same, and give a number."""
    with pytest.raises(ParameterError, match="cannot judge"):
        evaluation_metrics(task, np.full((3, 2), 0.5), labels.astype(np.int8))


def test_nothing_to_judge_is_refused():
    with pytest.raises(ParameterError, match="cannot judge"):
        evaluation_metrics(MULTI, np.zeros((0, 2)), np.zeros((0, 2), dtype=np.int8))


def test_models_give_sigmoids_for_several_labels():
    """By the weights themselves."""
    model = build_model(ModelSpec(name="logistic", input_shape=(5,), classes=3, task=MULTI))
    inputs = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    odds = model(inputs).detach().numpy().astype(np.float64)
    expected = 1 / (1 + np.exp(-odds))
    guesses = probabilities(model, inputs, physical_batch=16, task=MULTI)
    assert guesses == pytest.approx(expected, rel=1e-6)
    labels = torch.from_numpy((expected > 0.5).astype(np.int8))
    judged = evaluate(model, inputs, labels, physical_batch=16, task=MULTI)
    assert judged["subset_accuracy"] == judged["micro_f1"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("task", [Task.SINGLE_LABEL, MULTI])
def test_the_error_of_a_headline_is_that_of_other_sets_of_as_many_records(task):
    """Against 4,000 sets drawn anew, whose spread is known to 1.1 % (one standard deviation)."""
    generator, records = np.random.default_rng(5), 400
    figures, errors = [], []
    for _ in range(4000):
        if task is MULTI:
            labels = (generator.random((records, 4)) < [0.5, 0.3, 0.2, 0.05]).astype(np.int64)
            guesses = np.where(generator.random(labels.shape) < 0.8, labels, 1 - labels) * 1.0
        else:
            labels = generator.integers(0, 3, records)
            right = generator.random(records) < 0.8
            guesses = np.eye(3)[np.where(right, labels, (labels + 1) % 3)]
        figures.append(next(iter(evaluation_metrics(task, guesses, labels).values())))
        errors.append(headline_standard_error(task, guesses, labels))
    assert np.mean(errors) == pytest.approx(np.std(figures), rel=0.05)


def test_the_error_of_accuracy_is_the_binomial_one():
    labels = np.zeros(100, dtype=np.int64)
    guesses = np.eye(2)[np.arange(100) % 4 // 3]  # 75 of 100 are right
    expected = np.sqrt(0.75 * 0.25 / 99)
    assert headline_standard_error(Task.SINGLE_LABEL, guesses, labels) == pytest.approx(expected)
    assert headline_standard_error(Task.SINGLE_LABEL, guesses[:1], labels[:1]) == 0.0


@settings(max_examples=40, deadline=None)
@given(st.data(), shapes)
def test_labels_that_are_not_known_are_not_judged(data, shape):
    """Label by label the figures are scikit-learn's of the records on which it is known."""
    guesses = data.draw(arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.4, 0.6, 1.0])))
    labels = data.draw(arrays(np.int8, shape, elements=st.integers(-1, 1)))
    found = evaluation_metrics(MULTI, guesses, labels)
    known = labels >= 0
    every = (labels[known] == 1, guesses[known])
    columns = [(labels[known[:, i], i] == 1, guesses[known[:, i], i]) for i in range(shape[1])]
    whole, *single = [
        oracle.f1_score(t, g > 0.5, zero_division=0) if t.size else 0.0
        for t, g in (every, *columns)
    ]
    assert found["micro_f1"] == pytest.approx(whole)
    assert found["macro_f1"] == pytest.approx(np.mean(single))
    areas = [oracle.roc_auc_score(t, g) for t, g in columns if t.size and 0 < t.mean() < 1]
    assert found.get("macro_auc") == (pytest.approx(np.mean(areas)) if areas else None)
    right = ((guesses > 0.5) == (labels == 1)) | ~known
    assert found["subset_accuracy"] == pytest.approx(right.all(axis=1).mean())
    # What is guessed where nothing is known changes nothing, the standard error neither.
    others = np.where(known, guesses, 1 - guesses)
    assert evaluation_metrics(MULTI, others, labels) == found
    error = headline_standard_error(MULTI, guesses, labels)
    assert headline_standard_error(MULTI, others, labels) == error
