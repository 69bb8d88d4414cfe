"""The cost of a yes-or-no answer, against sixty digits and against draws."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import ndtr

from dpal.accounting.events import MajorityVotes
from dpal.accounting.votes.majority import (
    Answers,
    divergence,
    move_divergences,
    worst_divergence,
)

ORDERS = (1.1, 1.5, 2.0, 4.0, 32.0, 250.0)
PLAIN = [Answers(10, 2.0), Answers(11, 7.0), Answers(50, 7.0), Answers(50, 0.6)]
CHECKED = [Answers(10, 2.0, 7.0, 3.0), Answers(50, 7.0, 50.0, 30.0), Answers(9, 1.0, 6.5, 0.4)]


def tail(x: Any) -> Any:
    """Chance that a standard normal is below x, to all digits asked for."""
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def chances(answers: Answers, votes: int) -> list[Any]:
    """No, yes and unanswered, with 60 digits."""
    margin = mpmath.mpf(2 * votes - answers.teachers) / (mpmath.sqrt(2) * answers.sigma)
    said = [tail(-margin), tail(margin)]
    if answers.threshold is None or answers.threshold_sigma is None:
        return said
    above = (max(votes, answers.teachers - votes) - mpmath.mpf(answers.threshold)) / (
        mpmath.mpf(answers.threshold_sigma)
    )
    return [*(tail(above) * one for one in said), tail(-above)]


def precise(p: list[Any], q: list[Any], order: float) -> float:
    a = mpmath.mpf(order)
    moment = sum(one**a * two ** (1 - a) for one, two in zip(p, q, strict=True))
    return float(mpmath.log(moment) / (a - 1))


@pytest.mark.parametrize("answers", [*PLAIN, *CHECKED])
def test_divergences_have_all_their_digits(answers):
    more, less = move_divergences(answers, ORDERS)
    with mpmath.workdps(60):
        law = [chances(answers, votes) for votes in range(answers.teachers + 1)]
        for votes in range(answers.teachers):
            pair = law[votes], law[votes + 1]
            expected = [max(precise(*pair, a), precise(*pair[::-1], a)) for a in ORDERS]
            # rtol: a moment that is 1 + x loses digits of x, as x over order - 1 at least.
            assert_allclose(more[votes], expected, rtol=1e-11, atol=3e-14)
            assert_allclose(less[votes + 1], expected, rtol=1e-11, atol=3e-14)
    assert not more[-1].any()  # there is no vote to gain,
    assert not less[0].any()  # or to lose


@pytest.mark.parametrize("answers", [*PLAIN, *CHECKED])
def test_both_directions_are_charged(answers):
    law = answers.log_chances(np.arange(answers.teachers + 1.0))
    orders = np.array(ORDERS)
    there, back = divergence(law[:-1], law[1:], orders), divergence(law[1:], law[:-1], orders)
    # The two differ: whoever charges one of them alone charges too little.
    assert (there > 1.02 * back).any()
    assert (back > 1.02 * there).any()
    more, _ = move_divergences(answers, ORDERS)
    assert_allclose(more[:-1], np.maximum(there, back), rtol=1e-12)


@pytest.mark.parametrize("answers", [*PLAIN, *CHECKED])
def test_no_and_yes_are_alike(answers):
    more, less = move_divergences(answers, ORDERS)
    assert_allclose(more, less[::-1], rtol=1e-9, atol=1e-13)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 200), st.floats(-0.7, 2).map(lambda power: 10**power))
def test_the_worst_answer_costs_less_than_its_counts(teachers, sigma):
    worst, orders = worst_divergence(Answers(teachers, sigma), ORDERS), np.array(ORDERS)
    assert np.all(worst <= orders / sigma**2 * (1 + 1e-9))
    checked = worst_divergence(Answers(teachers, sigma, teachers / 2 + 1, 3.0), ORDERS)
    assert np.all(checked <= orders * (1 / sigma**2 + 1 / 18) * (1 + 1e-9))


@pytest.mark.parametrize("sigma", [7.0, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("threshold", [None, 3.0])
def test_the_worst_answer_is_never_rounded_down(sigma, threshold):
    """Where a moment is 1 but for its last digits: by 0.1 % at a million votes of noise."""
    answers = Answers(7, sigma, threshold, None if threshold is None else sigma)
    orders = (*ORDERS, 1.7, 5.9, 29.0)
    found = worst_divergence(answers, orders)
    with mpmath.workdps(60):
        law = [chances(answers, votes) for votes in range(8)]
        pairs = [*pairwise(law), *pairwise(law[::-1])]
        exact = [max(precise(*pair, order) for pair in pairs) for order in orders]
    assert (found >= exact).all()
    assert_allclose(found, exact, rtol=1e-10, atol=3e-14)


def test_a_hidden_count_costs_two_over_pi_of_a_noisy_one():
    # Privacy notes 1.8: 0.636 at orders up to 4, about .67 at 8-10, .88 at 32 (sigma 7, n 50).
    share = worst_divergence(Answers(50, 7.0), (2.0, 4.0, 8.0, 10.0, 32.0))
    share = share * 49 / np.array([2, 4, 8, 10, 32])
    assert_allclose(share[:2], 2 / math.pi, rtol=0.01)
    assert 0.64 < share[2] < share[3] < 0.69
    assert share[4] == pytest.approx(0.88, abs=0.01)


def test_drawn_answers_never_cost_more():
    # A lower bound from draws alone: noise on both counts, the larger one is released.
    answers, draws = Answers(9, 2.0), 400_000
    rng = np.random.default_rng(3)
    for votes in (2, 4):
        yes = [
            np.count_nonzero(rng.normal(v, 2.0, draws) > rng.normal(9 - v, 2.0, draws)) / draws
            for v in (votes, votes + 1)
        ]
        # Each share is off by 4.9 standard errors once in a million times.
        off = 4.9 * np.sqrt(np.array(yes) * (1 - np.array(yes)) / draws)
        assert np.all(np.abs(yes - ndtr(np.array([2 * votes - 9, 2 * votes - 7]) / 8**0.5)) < off)
        p, q = yes[0] + off[0], yes[1] - off[1]  # as near to each other as the draws allow
        assert p < q
        more, _ = move_divergences(answers, ORDERS)
        laws = np.log([[[1 - p, p]], [[1 - q, q]]])
        one, other = laws
        orders = np.array(ORDERS[:4])
        drawn = np.maximum(divergence(one, other, orders), divergence(other, one, orders))[0]
        assert np.all(drawn <= more[votes][:4])
        assert np.all(drawn > 0.8 * more[votes][:4])


def test_fractions_of_votes_lie_between_whole_ones():
    answers = Answers(50, 7.0)
    counts = np.linspace(0, 50, 501)
    law = np.exp(answers.log_chances(counts))
    assert_allclose(law.sum(axis=1), 1, rtol=1e-14)
    assert np.all(np.diff(law[:, 1]) > 0)
    checked = np.exp(Answers(50, 7.0, 40.0, 5.0).log_chances(counts))
    assert_allclose(checked.sum(axis=1), 1, rtol=1e-14)
    assert_allclose(checked[:, :2], law * (1 - checked[:, 2:]), rtol=1e-9)
    assert np.argmax(checked[:, 2]) == 250  # least sure at a tie
    assert_allclose(np.exp(Answers(50, 7.0).log_checks(counts)), np.tile([1.0, 0], (501, 1)))


def test_far_tails_cost_what_they_should():
    # Chances of 1e-270 and below: logarithms of chances would be -inf, and costs NaN.
    more, less = move_divergences(Answers(1000, 5.0), (2.0, 100.0))
    assert np.isfinite(more).all() and np.isfinite(less).all()
    assert more[0].tolist() == [0.0, 0.0]
    assert 480 < np.argmax(more[:, 0]) < 520


def test_an_event_is_asked_as_it_says():
    event = MajorityVotes(answers=7, teachers=50, sigma=7.0, threshold=40.0, threshold_sigma=9.0)
    assert event.question == Answers(50, 7.0, 40.0, 9.0)
    with pytest.raises(ValueError, match="read-only"):  # tables are shared between callers
        worst_divergence(Answers(50, 7.0), ORDERS)[0] = 0.0
