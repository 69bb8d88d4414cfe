from __future__ import annotations

import math

import numpy as np
import pytest

from dpal.acquisition.selection import select_at_random, select_by_noisy_score
from dpal.errors import ParameterError
from tests.conftest import RepeatableBits


def stream(scores, batch=7):
    rows = np.arange(len(scores))
    for start in range(0, len(scores), batch):
        yield rows[start : start + batch], np.asarray(scores[start : start + batch], dtype=float)


def test_with_little_noise_the_best_are_found(bits):
    scores = np.linspace(0, 0.8, 100)
    chosen = select_by_noisy_score(stream(scores), 10, width=0.8, epsilon=64, rng=bits)
    assert len(set(chosen.tolist()) & set(range(80, 100))) == 10


def test_a_record_cannot_change_its_odds_by_more_than_epsilon(bits):
    """Selection of one record among many, at its best against at its worst score.

    2000 draws each; the ratio of the two rates stays under exp(2 epsilon), the bound for
    score noise of scale width / epsilon on both sides of the threshold.
    """
    epsilon, hits = 1.0, {0.0: 0, 1.0: 0}
    for own in hits:
        for _ in range(2000):
            scores = np.concatenate([[own], np.full(9, 0.5)])
            chosen = select_by_noisy_score(
                stream(scores, 10), 3, width=1.0, epsilon=epsilon, rng=bits
            )
            hits[own] += 0 in chosen
    assert hits[0.0] > 100
    assert hits[1.0] / hits[0.0] <= math.exp(epsilon) * 1.15
    assert hits[1.0] / hits[0.0] > 1.3  # and the score does matter


def test_random_selection_is_uniform(bits):
    counts = np.zeros(20)
    for _ in range(3000):
        counts[select_at_random(iter([np.arange(12), np.arange(12, 20)]), 5, rng=bits)] += 1
    # Each row: 3000 draws at 1/4, standard deviation 23.7; 4.9 of them is a 1e-6 alarm.
    assert np.abs(counts - 750).max() < 4.9 * 23.7


def test_selected_rows_are_distinct(bits):
    chosen = select_at_random(iter([np.arange(50)]), 50, rng=bits)
    assert sorted(chosen.tolist()) == list(range(50))


def test_batches_do_not_matter(bits):
    scores = np.random.default_rng(0).random(500)
    # 64 is the largest epsilon on offer; scores are spread so that order is decided.
    spread = np.round(scores, 1)
    for batch in (1, 64, 500):
        chosen = select_by_noisy_score(
            stream(spread, batch), 20, width=1.0, epsilon=64, rng=RepeatableBits(3)
        )
        assert (spread[chosen] >= 0.8).all()


def test_a_score_outside_of_the_range_is_not_released(bits):
    with pytest.raises(ParameterError, match=r"outside of \[0, 0.8\]; nothing was released"):
        select_by_noisy_score(stream([0.1, 0.9]), 1, width=0.8, epsilon=1, rng=bits)
    with pytest.raises(ParameterError):
        select_by_noisy_score(stream([0.1, math.nan]), 1, width=0.8, epsilon=1, rng=bits)


def test_too_few_records_are_said(bits):
    with pytest.raises(ParameterError, match="3 records are to be selected and 2 are unlabeled"):
        select_at_random(iter([np.arange(2)]), 3, rng=bits)
