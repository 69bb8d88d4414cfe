"""Heads in whole numbers say what logistic regression says, of few records and of odd ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import cross_val_score

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.errors import DataError
from dpal.runs.site_model import (
    STRENGTHS,
    LabeledFeatures,
    balanced_accuracy,
    read_bought,
    read_labeled,
    train_heads,
    write_site_model,
)
from dpal.runs.sites_parties import load_site_model
from tests.capc.together import terms_of


def blobs(rng, classes, rows, *, width=8, spread=25.0):
    centres = rng.integers(-60, 60, (classes, width))
    chosen = rng.integers(0, classes, rows)
    values = centres[chosen] + rng.normal(0, spread, (rows, width))
    return values.round().clip(-128, 127).astype(np.int8), chosen


def of_classes(features, chosen, classes):
    return LabeledFeatures(features, np.eye(classes, dtype=np.int8)[chosen])


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_classes_are_those_of_logistic_regression(classes):
    rng = np.random.default_rng(classes)
    features, chosen = blobs(rng, classes, 400)
    terms = terms_of(3, labels=classes, features=8, mechanism=Mechanism.GNMAX)
    model = train_heads(of_classes(features, chosen, classes), terms, strengths=(0.1,))
    exact = LogisticRegression(C=0.1, class_weight="balanced", max_iter=500)
    exact.fit(features / 127, chosen)
    said = model.ballots(features, terms.rule).argmax(axis=1)
    assert (said == exact.predict(features / 127)).mean() > 0.98
    judged = balanced_accuracy(model, of_classes(features, chosen, classes), terms)
    assert judged == pytest.approx(balanced_accuracy_score(chosen, said))
    assert np.abs(model.weights).max() == 127


def test_labels_are_those_of_a_logistic_regression_each():
    rng = np.random.default_rng(1)
    features, chosen = blobs(rng, 4, 500)
    labels = np.stack([chosen % 2, chosen >= 2, chosen == 0], axis=1).astype(np.int8)
    terms = terms_of(3, labels=3, features=8)
    records = LabeledFeatures(features, labels)
    model = train_heads(records, terms, strengths=(0.1,))
    said, scores = model.ballots(features, terms.rule), []
    for place, truth in enumerate(labels.T):
        exact = LogisticRegression(C=0.1, class_weight="balanced", max_iter=500)
        predicted = exact.fit(features / 127, truth).predict(features / 127)
        assert (said[:, place] == predicted).mean() > 0.97
        scores.append(balanced_accuracy_score(truth, said[:, place]))
    assert balanced_accuracy(model, records, terms) == pytest.approx(np.mean(scores))


def test_a_label_that_all_have_and_a_class_that_none_has():
    rng = np.random.default_rng(2)
    features, chosen = blobs(rng, 2, 40)
    terms = terms_of(3, labels=4, features=8, mechanism=Mechanism.GNMAX)
    model = train_heads(of_classes(features, 2 * chosen, 4), terms)
    anything = rng.integers(-128, 128, (500, 8), dtype=np.int8)
    assert set(model.ballots(anything, terms.rule).argmax(axis=1)) <= {0, 2}
    alone = train_heads(of_classes(features, np.full(40, 3), 4), terms)
    assert set(alone.ballots(anything, terms.rule).argmax(axis=1)) == {3}
    labels = np.stack([np.ones(40), np.zeros(40), chosen], axis=1).astype(np.int8)
    plain = terms_of(3, labels=3, features=8)
    said = train_heads(LabeledFeatures(features, labels), plain).ballots(anything, plain.rule)
    assert said[:, 0].all() and not said[:, 1].any()


def test_the_penalty_is_that_which_cross_validation_finds_best():
    rng = np.random.default_rng(3)
    features, chosen = blobs(rng, 2, 60, width=60, spread=400.0)
    terms = terms_of(3, labels=2, features=60, mechanism=Mechanism.GNMAX)
    records = of_classes(features, chosen, 2)
    found = {}
    for strength in STRENGTHS:
        head = LogisticRegression(C=strength, class_weight="balanced", max_iter=500)
        scores = cross_val_score(head, features / 127, chosen, cv=3, scoring="balanced_accuracy")
        found[strength] = scores.mean()
    best = max(found, key=lambda strength: found[strength])
    assert min(found.values()) < found[best]
    expected = train_heads(records, terms, strengths=(best,))
    assert (train_heads(records, terms).weights == expected.weights).all()


def written(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("label", [[0, 3], [0, -1], [0, None], ["a", "b"]])
def test_labels_that_are_no_classes_are_refused(tmp_path, label):
    terms = terms_of(3, labels=3, features=2, mechanism=Mechanism.GNMAX)
    file = written(tmp_path / "own.parquet", id=["a", "b"], features=[[1, 2]] * 2, label=label)
    with pytest.raises(DataError):
        read_labeled(file, terms)


@pytest.mark.parametrize("labels", [[[0, 1], [0]], [[0, 1], [0, 2]], [[0, 1], None]])
def test_labels_that_are_no_yes_or_no_are_refused(tmp_path, labels):
    terms = terms_of(3, labels=2, features=2)
    file = written(tmp_path / "own.parquet", id=["a", "b"], features=[[1, 2]] * 2, labels=labels)
    with pytest.raises(DataError):
        read_labeled(file, terms)


def test_what_is_missing_is_named(tmp_path):
    terms = terms_of(3, labels=2, features=2)
    file = written(tmp_path / "own.parquet", id=["a"], features=[[1, 2]], label=[1])
    with pytest.raises(DataError, match="labels"):
        read_labeled(file, terms)
    answers = written(tmp_path / "answers.parquet", id=["x"], labels=[[0, 1]], query=["d"])
    with pytest.raises(DataError, match="dpal capc query"):
        read_bought(file, answers, terms)
    other = written(tmp_path / "other.parquet", id=["a"], labels=[[0, 1, 1]], query=["d"])
    with pytest.raises(DataError, match="other labels"):
        read_bought(file, other, terms)


def test_what_is_written_is_read_and_only_answered_queries_teach(tmp_path):
    terms = terms_of(3, labels=2, features=2)
    file = written(tmp_path / "asked.parquet", id=["a", "b"], features=[[1, 2], [-3, 4]])
    answers = written(tmp_path / "answers.parquet", id=["b"], labels=[[0, 1]], query=["d"])
    bought = read_bought(file, answers, terms)
    assert bought.features.tolist() == [[-3, 4]] and bought.labels.tolist() == [[0, 1]]
    model = train_heads(bought, terms)
    write_site_model(tmp_path / "model.safetensors", model)
    again = load_site_model(tmp_path / "model.safetensors")
    assert (again.weights == model.weights).all() and (again.bias == model.bias).all()
