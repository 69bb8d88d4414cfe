"""Noisy accuracy: what its intervals cover, and what one record can move."""

from __future__ import annotations

import numpy as np
import pytest

from dpal.accounting.events import NoisyFigures
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.mechanisms.gaussian_counts import gaussian_counts
from dpal.training.gain_over_majority import model_worth
from dpal.training.noisy_metrics import confusion_counts, noisy_accuracy
from dpal.training.protected_worth import worth_of_classes

CLASSES, DRAWS = 4, 1000


def answered(
    rng: np.random.Generator, records: int, accuracy: float
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels of records of which a share, on average, is answered rightly."""
    labels = rng.integers(0, CLASSES, records)
    wrong = (labels + rng.integers(1, CLASSES, records)) % CLASSES
    said = np.where(rng.random(records) < accuracy, labels, wrong)
    return np.eye(CLASSES)[said], labels


def covered(bits, *, records: int, noise: float, accuracy: float, told: float | None = None) -> int:
    """Of 1,000 intervals, each of other records and other noise, those that hold the figure."""
    rng, event = np.random.default_rng(7), NoisyFigures(noise_multiplier=noise)
    intervals = [
        noisy_accuracy(
            gaussian_counts(confusion_counts(*answered(rng, records, accuracy)), event, rng=bits),
            records=records,
            noise=event.noise if told is None else told,
        )
        for _ in range(DRAWS)
    ]
    assert all(0 <= one.low <= one.value <= one.high <= 1 for one in intervals)
    return sum(one.low <= accuracy <= one.high for one in intervals)


# 93 to 97 %: intervals that hold with chance 0.95 miss that once in 250 times; draws are seeded.
@pytest.mark.parametrize(
    ("records", "noise", "accuracy"),
    [(2000, 2.0, 0.8), (2000, 20.0, 0.8), (500, 10.0, 0.6), (1000, 5.0, 0.95)],
)
def test_intervals_cover_what_they_say(bits, records, noise, accuracy):
    assert 930 <= covered(bits, records=records, noise=noise, accuracy=accuracy) <= 970


def test_intervals_that_forget_the_noise_are_found_out(bits):
    assert covered(bits, records=500, noise=20.0, accuracy=0.6, told=0.0) < 850


def test_one_record_moves_as_many_counts_as_is_paid_for():
    rng = np.random.default_rng(1)
    guesses, labels = answered(rng, 60, 0.7)
    counts = confusion_counts(guesses, labels)
    assert counts.sum() == 60
    for record in range(60):
        kept = np.arange(60) != record
        blanked = counts - confusion_counts(guesses[kept], labels[kept])
        assert np.abs(blanked).sum() == 1, "zero_out: one count, by one"
        for label in range(CLASSES):
            for said in range(CLASSES):
                other, others = guesses.copy(), labels.copy()
                other[record], others[record] = np.eye(CLASSES)[said], label
                moved = counts - confusion_counts(other, others)
                assert (moved.astype(float) ** 2).sum() in (0, 2), "replace_one: two counts at most"


def test_noise_has_the_law_that_is_charged(bits):
    """Of 40,000 noisy zeros the variance is within 5 of its standard errors, and its mean too."""
    event = NoisyFigures(noise_multiplier=3.0, counts_moved=2)
    assert event.noise == pytest.approx(3 * np.sqrt(2))
    noisy = gaussian_counts(np.zeros((200, 200), np.int64), event, rng=bits).ravel()
    assert abs(noisy.mean()) < 5 * event.noise / np.sqrt(noisy.size)
    wanted = event.noise**2 + 1 / 12
    assert abs(noisy.var() - wanted) < 5 * wanted * np.sqrt(2 / noisy.size)
    for wrong in (event.noise / np.sqrt(2), event.noise * 1.1):  # what this must reject
        assert abs(noisy.var() - wrong**2 - 1 / 12) > 5 * wrong**2 * np.sqrt(2 / noisy.size)


def test_counts_may_be_negative_and_figures_may_not(bits):
    event = NoisyFigures(noise_multiplier=50.0)
    noisy = gaussian_counts(np.zeros((3, 3), np.int64), event, rng=bits)
    assert noisy.dtype == np.int64 and (noisy < 0).any()
    told = noisy_accuracy(noisy, records=10, noise=event.noise)
    assert 0 <= told.low <= told.value <= told.high <= 1


def test_what_does_not_belong_together_is_refused():
    guesses = np.eye(3)
    with pytest.raises(ParameterError):
        confusion_counts(guesses, np.array([0, 1]))
    with pytest.raises(ParameterError):
        confusion_counts(guesses, np.array([0, 1, 3]))


def test_without_noise_counts_say_what_records_say():
    guesses, labels = answered(np.random.default_rng(3), 900, 0.7)
    told = worth_of_classes(confusion_counts(guesses, labels), records=900, noise=0.0)
    known = model_worth(Task.SINGLE_LABEL, guesses, labels)
    assert told.majority == known.majority
    assert told.balanced_accuracy == pytest.approx(known.balanced_accuracy)
    assert [each.recall for each in told.classes] == [each.recall for each in known.classes]
    # Counts are rounded, which is counted as noise.
    assert told.gain_standard_error == pytest.approx(known.gain_standard_error, rel=0.01)
    assert told.auc is None


def gains(bits, *, noise: float, told: float) -> tuple[float, float]:
    """Spread of 600 noisy gains of models that always give one answer, and the error told of it."""
    rng, event = np.random.default_rng(11), NoisyFigures(noise_multiplier=noise)
    found, errors = [], []
    for _ in range(600):
        labels = rng.choice(CLASSES, 500, p=[0.7, 0.1, 0.1, 0.1])
        said = np.where(rng.random(500) < 0.5, 0, labels)
        counts = gaussian_counts(confusion_counts(np.eye(CLASSES)[said], labels), event, rng=bits)
        worth = worth_of_classes(counts, records=500, noise=told)
        found.append(np.trace(counts) / 500 - worth.majority)
        errors.append(worth.gain_standard_error)
    return float(np.std(found)), float(np.mean(errors))


def test_the_error_of_a_noisy_gain_counts_the_noise(bits):
    """Of 600 draws a spread is known to 3 %; 12 % is four times that."""
    spread, error = gains(bits, noise=8.0, told=8.0)
    assert error == pytest.approx(spread, rel=0.12)
    spread, error = gains(bits, noise=8.0, told=0.0)
    assert error < 0.8 * spread, "what forgets the noise is found out"


def test_a_class_that_noise_hides_has_no_recall(bits):
    counts = np.array([[400, 10], [0, 1]])
    told = worth_of_classes(counts, records=411, noise=20.0)
    assert [each.recall is None for each in told.classes] == [False, True]
    assert worth_of_classes(-counts, records=411, noise=20.0).balanced_accuracy == 0.0
    with pytest.raises(ParameterError):
        worth_of_classes(counts, records=0, noise=1.0)
