"""What votes with Skellam noise tell: by tables, beside mpmath, SciPy and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp
from pytest import approx
from scipy import stats

from dpal.accounting.events import SkellamCounts, SkellamMajorities
from dpal.accounting.events.skellam_votes import MOST_SIGMA
from dpal.accounting.rdp import ORDERS, epsilon_spent
from dpal.accounting.votes.skellam import (
    answer_divergence,
    count_divergence,
    skellam_log_masses,
    skellam_log_tails,
)

EVERY = tuple(ORDERS)


@pytest.mark.parametrize("variance", [0.005, 0.5, 40.5, 20_000.0])
def test_chances_are_those_of_the_bessel_function_far_into_the_tails(variance):
    masses = skellam_log_masses(variance)
    middle = masses.size // 2
    with mp.workdps(60):
        for k in (0, 1, 2, 17, 200, 900):
            exact = mp.log(mp.besseli(k, variance)) - variance
            assert masses[middle + k] == masses[middle - k] == approx(float(exact), abs=1e-9)
    assert np.exp(masses).sum() == approx(1, abs=1e-12)


def test_tails_are_sums_of_chances():
    tails, law = skellam_log_tails(40.5), stats.skellam(20.25, 20.25)
    middle = tails.size // 2
    values = np.arange(-45, 46)
    assert np.exp(tails[middle + values]) == approx(law.sf(values - 1), rel=1e-9)


@pytest.mark.parametrize("variance", [0.5, 40.5])
def test_divergences_are_those_of_plain_sums_at_high_precision(variance):
    orders = (1.5, 2.0, 8.0, 64.0)
    with mp.workdps(50):
        p = {k: mp.exp(-variance) * mp.besseli(abs(k), variance) for k in range(-200, 600)}
        exact = [mp.log(mp.fsum(p[k] * (p[k] / p[k + 1]) ** (order - 1) for k in range(-200, 599)))
                 / (order - 1) for order in orders]  # fmt: skip
    found = count_divergence(variance, orders)
    assert found == approx(np.array(exact, dtype=float), rel=1e-8)
    assert (found >= np.array(exact, dtype=float)).all(), "rounded up"


def divergence_of_bits(p, q, order):
    """From chances that 1 less them is accurate of."""
    if not (min(p, q) > 1e-15 and max(p, q) < 1 - 1e-9):
        return 0.0
    yes = order * np.log(p) + (1 - order) * np.log(q)
    no = order * np.log1p(-p) + (1 - order) * np.log1p(-q)
    return np.logaddexp(yes, no) / (order - 1)


@pytest.mark.parametrize("variance", [0.5, 40.5])
def test_no_count_tells_more_by_an_answer_than_is_charged(variance):
    """Also where there is more noise than is charged, and an answer to it."""
    law = stats.skellam(variance / 2, variance / 2)
    other = stats.skellam(variance, variance)
    reach = 12 + int(6 * variance**0.5)
    for order in (1.5, 2.0, 8.0, 32.0):
        (charged,) = answer_divergence(variance, (order,))
        told = [
            max(divergence_of_bits(p, q, order), divergence_of_bits(q, p, order))
            for noise in (law, other)
            for m in range(-reach, reach)
            for p, q in [(noise.sf(m), noise.sf(m + 1))]
        ]
        assert max(told) <= charged * (1 + 1e-9)
        assert max(told) == approx(charged, rel=1e-4), "it is reached"


def test_answers_tell_less_than_counts_and_counts_less_than_gaussian_ones():
    for variance in (24.5, 40.5):
        answers, counts = answer_divergence(variance, EVERY), count_divergence(variance, EVERY)
        assert (answers <= counts).all()
        gaussian = ORDERS / (2 * variance)
        # Of an order near 1 discrete noise loses a little more: by 1 / (4 variance ** 2) or so.
        assert (counts <= gaussian * (1 + 0.25 / variance**2)).all()
        assert (counts <= gaussian)[ORDERS >= 2].all()
        assert answers[ORDERS == 2][0] == approx(0.644 * counts[ORDERS == 2][0], rel=0.01)


def test_answers_tell_less_than_counts_up_to_the_most_noise_that_may_be_charged():
    most = MOST_SIGMA**2 / 2
    answers, counts = answer_divergence(most, (2.0,)), count_divergence(most, (2.0,))
    assert answers[0] == approx(2 / np.pi * counts[0], rel=0.01)


@pytest.mark.parametrize(
    ("event", "epsilon", "queries"),
    [
        (SkellamMajorities, 20, 33), (SkellamCounts, 20, 21),
        (SkellamMajorities, 8, 7), (SkellamCounts, 8, 4),
    ],
)  # fmt: skip
def test_queries_of_20_labels_that_an_epsilon_buys_at_sigma_9(event, epsilon, queries):
    """As a prototype found them, with an account of its own."""
    costs = [epsilon_spent([event(answers=20 * n, sigma=9.0)], delta=1e-5)
             for n in (queries, queries + 1)]  # fmt: skip
    assert costs[0] <= epsilon < costs[1]
