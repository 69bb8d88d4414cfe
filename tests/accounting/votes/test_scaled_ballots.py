"""What one scaled ballot can change costs no more than is charged: by brute force, and reached."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from mpmath import mp
from pytest import approx
from scipy import stats

from dpal.accounting.events import SkellamScaledCounts, SkellamScaledMajorities
from dpal.accounting.rdp import ORDERS, epsilon_spent
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.scaled_ballots import (
    PARTS,
    _answer_beyond,
    _beyond,
    moved_answers,
    moved_counts,
    scaled_entries,
    worst_change,
)
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.privacy import Adjacency

SOME = (1.5, 2.0, 8.0, 32.0)
RULES = [(Mechanism.TAU_L2, 1.0), (Mechanism.TAU_L2, 1.8), (Mechanism.TAU_L1, 2.0),
         (Mechanism.TAU_L1, 1.5)]  # fmt: skip


def all_ballots(entries):
    """Every ballot of zeros and ones, scaled: (2**labels, labels) in parts."""
    plain = np.array(list(product((0, 1), repeat=len(entries))))
    return plain * np.array([0, *entries])[plain.sum(axis=1)][:, None]


@pytest.mark.parametrize(("mechanism", "limit"), RULES)
def test_no_ballot_is_longer_than_the_limit_and_none_is_shorter_than_need_be(mechanism, limit):
    for labels in (2, 5, 20, 100):
        entries = scaled_entries(mechanism, labels, limit)
        assert len(entries) == labels and list(entries) == sorted(entries, reverse=True)
        for positives, entry in enumerate(entries, 1):
            power = 2 if mechanism is Mechanism.TAU_L2 else 1
            most = (PARTS * Fraction(limit)) ** power
            assert positives * entry**power <= most
            assert entry == PARTS or positives * (entry + 1) ** power > most


def exact_divergence(variance, moved, order, reach=400):
    with mp.workdps(60):
        p = {k: mp.exp(-variance) * mp.besseli(abs(k), variance) for k in range(-reach, reach + 1)}
        total = mp.fsum(p[k] * (p[k] / p[k + moved]) ** (order - 1)
                        for k in range(-reach, reach + 1 - moved))  # fmt: skip
        return float(mp.log(total) / (order - 1))


@pytest.mark.slow
@pytest.mark.parametrize("variance", [0.5, 20.0])
def test_moves_cost_what_plain_sums_at_high_precision_say(variance):
    found = moved_counts(variance, 5, SOME)
    assert not found[0].any()
    for moved in (1, 2, 5):
        exact = [exact_divergence(variance, moved, order) for order in SOME]
        assert found[moved] == approx(exact, rel=1e-7)
        assert (found[moved] >= exact).all(), "rounded up"


@pytest.mark.parametrize(("order", "moved", "last"), [(2.0, 1, 20), (8.0, 3, 60), (4.0, 16, 120)])
def test_what_lies_beyond_the_table_is_bounded(order, moved, last):
    variance = 6.0
    with mp.workdps(60):

        def p(k):
            return mp.exp(-variance) * mp.besseli(abs(k), variance)

        right = mp.fsum(p(k) * (p(k) / p(k + moved)) ** (order - 1)
                        for k in range(last - moved + 1, last + 500))  # fmt: skip
        left = mp.fsum(p(k) for k in range(last + 1, last + 500))
        exact = float(mp.log(right + left))
    assert exact <= _beyond(variance, order, moved, last) <= exact + 12


def test_a_table_that_ends_too_early_charges_infinitely():
    assert _beyond(6.0, 512.0, 16, 70) == math.inf
    assert _answer_beyond(6.0, 512.0, 16, 70) == math.inf


def test_answers_beyond_the_table_tell_less_than_is_allowed_for():
    variance, last = 30.0, 60
    with mp.workdps(60):
        p = {k: mp.exp(-variance) * mp.besseli(k, variance) for k in range(40, 400)}
        tails = {m: mp.fsum(p[k] for k in range(m, 400)) for m in range(last - 4, last + 40)}
        for order, moved in ((1.5, 1), (2.0, 4), (4.0, 2)):
            bound = _answer_beyond(variance, order, moved, last)
            assert math.isfinite(bound)
            for m in range(last - moved, last + 30):
                low, high = tails[m + moved], tails[m]
                for mine, other in ((low, high), (high, low)):
                    moment = mine**order * other ** (1 - order)
                    moment += (1 - mine) ** order * (1 - other) ** (1 - order)
                    assert mp.log(moment - 1) <= bound


@pytest.mark.parametrize(("mechanism", "limit"), RULES)
def test_every_pair_of_ballots_is_within_what_is_charged_and_one_reaches_it(mechanism, limit):
    """All 64 ballots of six labels: the sum over counts, by none of the rule's own arithmetic."""
    entries = scaled_entries(mechanism, 6, limit)
    for costs in (moved_counts(800.0, PARTS, SOME), moved_answers(800.0, PARTS, SOME)):
        charged, ballots = worst_change(entries, costs), all_ballots(entries)
        apart = np.abs(ballots[:, None] - ballots[None])
        found = costs[apart].sum(axis=2).max(axis=(0, 1))
        assert found == approx(charged, rel=1e-12)


def test_noisy_sums_of_two_labels_tell_no_more_than_is_charged():
    """The joint law of two noisy counts, summed over the plane, for every pair of ballots."""
    entries, variance, reach = (3, 2), 2.0, 60
    law = stats.skellam(variance / 2, variance / 2)
    charged = worst_change(entries, moved_counts(variance, 3, SOME))
    values, worst = np.arange(-reach, reach + 1), np.zeros(len(SOME))
    ballots = all_ballots(entries)
    for mine, other in product(ballots, ballots):
        logs = [law.logpmf(values - one[0])[:, None] + law.logpmf(values - one[1])[None]
                for one in (mine, other)]  # fmt: skip
        kept = np.isfinite(logs[0]) & np.isfinite(logs[1])
        for place, order in enumerate(SOME[:3]):
            terms = (order * logs[0] + (1 - order) * logs[1])[kept]
            told = np.logaddexp.reduce(terms) / (order - 1)
            assert told <= charged[place] * (1 + 1e-8)
            worst[place] = max(worst[place], told)
    assert worst[:3] == approx(charged[:3], rel=1e-6), "it is reached"


@pytest.mark.parametrize("variance", [2.0, 50.0])
def test_no_answer_tells_more_than_is_charged(variance):
    """At every threshold, also where there is more noise than is charged."""
    charged = moved_answers(variance, 4, tuple(ORDERS))
    reach = 12 + int(6 * variance**0.5)
    for moved, place in product((1, 2, 4), (4, 8, 72)):  # every fourth is looked at, and no chord
        order = ORDERS[place]
        told = []
        for noise in (stats.skellam(variance / 2, variance / 2), stats.skellam(variance, variance)):
            for m in range(-reach, reach):
                p, q = noise.sf(m), noise.sf(m + moved)
                if min(p, q) > 1e-15 and max(p, q) < 1 - 1e-9:
                    pairs = ((p, q), (q, p))
                    told += [math.log(x**order * y ** (1 - order)
                                      + (1 - x) ** order * (1 - y) ** (1 - order)) / (order - 1)
                             for x, y in pairs]  # fmt: skip
        assert max(told) <= charged[moved, place] * (1 + 1e-9)
        assert max(told) == approx(charged[moved, place], rel=1e-4), "it is reached"


def test_between_orders_the_chord_lies_above():
    many = moved_answers(200.0, 4, tuple(ORDERS))
    exact = [moved_answers(200.0, 4, (order,))[4, 0] for order in ORDERS[:40]]
    assert (many[4, :40] >= np.array(exact) * (1 - 1e-12)).all()
    assert many[4, :40:4] == approx(exact[::4], rel=1e-9)
    assert (many <= moved_counts(200.0, 4, tuple(ORDERS)) * (1 + 1e-12)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "limit"), RULES)
def test_it_costs_what_gaussian_noise_would_and_a_little_less(mechanism, limit):
    """At noise of many parts: entries are rounded down, and else it is the plain vote's account."""
    entries = scaled_entries(mechanism, 20, limit)
    rule = VotingRule(mechanism=mechanism, teachers=50, labels=20, sigma=9.0, limit=limit)
    [gaussian] = rule.events(10)
    ours = SkellamScaledCounts(queries=10, entries=entries, parts=PARTS, sigma=9.0)
    theirs, mine = (one.renyi(Adjacency.ZERO_OUT)[ORDERS < 30] for one in (gaussian, ours))
    assert (mine <= theirs * (1 + 1e-4)).all() and (mine >= 0.9 * theirs).all()
    told = SkellamScaledMajorities(queries=10, entries=entries, parts=PARTS, sigma=9.0)
    decide = (ORDERS >= 1.5) & (ORDERS < 8)
    both = (one.renyi(Adjacency.ZERO_OUT)[decide] for one in (told, ours))
    assert (next(both) <= 0.67 * next(both)).all()


@pytest.mark.parametrize("kind", [SkellamScaledCounts, SkellamScaledMajorities])
def test_a_second_opinion_agrees(kind):
    event = kind(queries=10, entries=(16, 16, 11, 9), parts=16, sigma=6.0)
    orders = np.array([1.5, 2.0, 8.0, 24.0])
    ours = np.interp(orders, ORDERS, event.renyi(Adjacency.ZERO_OUT))
    assert event.second_renyi(orders) == approx(ours, rel=2e-2)
    assert epsilon_spent([event], delta=1e-5) > 0


@pytest.mark.slow
def test_queries_that_an_epsilon_buys():
    """20 labels, tau 1.8, sigma 9, delta 1e-5: three times as many as of unscaled ballots."""
    entries = scaled_entries(Mechanism.TAU_L2, 20, 1.8)
    for kind, epsilon, queries in (
        (SkellamScaledMajorities, 20, 107), (SkellamScaledCounts, 20, 69),
        (SkellamScaledMajorities, 8, 24), (SkellamScaledCounts, 8, 15),
    ):  # fmt: skip
        costs = [epsilon_spent([kind(queries=n, entries=entries, parts=PARTS, sigma=9.0)],
                               delta=1e-5) for n in (queries, queries + 1)]  # fmt: skip
        assert costs[0] <= epsilon < costs[1], (kind, epsilon, costs)
