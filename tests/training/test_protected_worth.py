"""What noisy counts of several labels say of a model: as exact figures, with wider errors."""

from __future__ import annotations

import numpy as np
import pytest

from dpal.labels import Task
from dpal.training.metrics import headline_standard_error
from dpal.training.model_worth import model_worth
from dpal.training.protected_figures import label_counts
from dpal.training.protected_worth import worth_of_labels
from dpal.training.released_counts import ReleasedCounts, worth_of
from dpal.training.score_histograms import score_counts

RNG = np.random.default_rng(20261125)
CHANCES = np.array([0.8, 0.3, 0.05])


def drawn(records, skill=2.0):
    """Labels of which most records have the first, and guesses that know a little of them."""
    truth = (RNG.random((records, 3)) < CHANCES).astype(np.int64)
    scores = skill * (truth - 0.5) + RNG.normal(0, 1, truth.shape)
    return 1 / (1 + np.exp(-scores)), truth


def test_without_noise_it_is_what_the_records_say():
    guesses, truth = drawn(4000)
    error = headline_standard_error(Task.MULTI_LABEL, guesses, truth)
    told = worth_of_labels(
        label_counts(guesses, truth), records=4000, noise=0.0, headline_error=error
    )
    exact = model_worth(Task.MULTI_LABEL, guesses, truth)
    assert told.majority == pytest.approx(exact.majority)
    assert told.balanced_accuracy == pytest.approx(exact.balanced_accuracy)
    assert [each.recall for each in told.classes] == pytest.approx(
        [each.recall for each in exact.classes]
    )
    assert [each.records for each in told.classes] == [each.records for each in exact.classes]
    assert exact.gain_standard_error <= told.gain_standard_error < 5 * exact.gain_standard_error


def test_its_errors_are_no_smaller_than_what_is_seen_over_draws_and_noise():
    """400 draws: a deviation is known to 3.5 %, so 15 % too little is out by 4 of its errors."""
    noise, found, stated = 12.0, [], []
    for _ in range(400):
        guesses, truth = drawn(600)
        noisy = label_counts(guesses, truth) + np.rint(RNG.normal(0, noise, (3, 2, 2))).astype(int)
        told = worth_of_labels(noisy, records=600, noise=noise, headline_error=0.0)
        found.append(told.majority)
        stated.append(told.gain_standard_error)
    assert np.std(found) < 1.15 * np.mean(stated)


def test_labels_that_few_have_leave_nothing_to_the_most_frequent_answer():
    counts = np.array([[[900, 40], [30, 30]], [[950, 20], [20, 10]]])
    told = worth_of_labels(counts, records=1000, noise=1.0, headline_error=0.01)
    assert (told.majority, told.gain_standard_error) == (0.0, 0.01)


def test_records_of_one_group_are_taken_to_go_together():
    counts = np.array([[[100, 100], [200, 600]]])
    alone, together = (
        worth_of_labels(counts, records=1000, noise=0.0, headline_error=0.0, group_records=most)
        for most in (1, 4)
    )
    assert together.gain_standard_error == pytest.approx(2 * alone.gain_standard_error)


def test_released_scores_say_how_well_it_ranks():
    guesses, truth = drawn(3000)
    released = ReleasedCounts(
        records=3000,
        noise=0.0,
        counts=label_counts(guesses, truth),
        spread=100.0,
        scores=score_counts(guesses, truth),
    )
    told = worth_of(released)
    exact = model_worth(Task.MULTI_LABEL, guesses, truth)
    assert told.auc == pytest.approx(exact.auc, abs=0.01)
    assert all(each.auc is not None for each in told.classes)
