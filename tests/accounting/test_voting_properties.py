"""What must hold of every rule and all votes: symmetry, and which cost is below which."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dpal.accounting.votes.cost_analysis import (
    ORDERS,
    Conversion,
    Mode,
    analyse,
    epsilon_of,
    queries_within,
    query_curve,
)
from dpal.accounting.votes.majority import Answers, move_divergences
from dpal.accounting.votes.mechanisms import CLIPPED, PLURALITY, Confidence, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError
from dpal.voting.ballots import Ballots, votes_for
from dpal.voting.draw_noisy_outcomes import release
from tests.conftest import RepeatableBits

COARSE = np.array([1.1, 1.5, 2, 4, 8, 32, 100, 1000])
ANY_VOTES = (Mode.DATA_INDEPENDENT, Mode.SHARPENED)
ADDED_UP = [mode for mode in Mode if mode is not Mode.SANITIZED]
# 1 - delta so small that divergences are all there is to epsilon.
NO_SLACK = 1 - 2.0**-52


def costs(rule: VotingRule, votes: NDArray[np.number], mode: Mode) -> NDArray[np.float64]:
    """Cost of each query at every order of COARSE, (queries, o), read off epsilons."""
    found = [
        analyse(
            rule,
            votes,
            mode=mode,
            delta=NO_SLACK,
            orders=np.array([order]),
            conversion=Conversion.CLASSIC,
        ).epsilons
        for order in COARSE
    ]
    return np.diff(np.stack(found, axis=1), axis=0, prepend=0.0)


sigmas = st.floats(-0.5, 1.7).map(lambda power: 10**power)
checks = st.builds(Confidence, threshold=st.floats(0, 20), sigma=sigmas)


@st.composite
def rules(draw: st.DrawFn, *, checked: bool = True) -> VotingRule:
    mechanism = draw(st.sampled_from(list(Mechanism)))
    teachers, labels = draw(st.integers(3, 15)), draw(st.integers(2, 5))
    limit = float(draw(st.integers(1, labels))) if mechanism in CLIPPED else None
    if mechanism in (Mechanism.TAU_L1, Mechanism.TAU_L2):
        limit = draw(st.floats(1, 4))
    return VotingRule(
        mechanism=mechanism,
        teachers=teachers,
        labels=labels,
        sigma=draw(sigmas),
        limit=limit,
        noises=2 if mechanism in PLURALITY else draw(st.sampled_from([1, 2])),
        confidence=draw(st.one_of(st.none(), checks)) if checked else None,
    )


def voted(rule: VotingRule, seed: int, queries: int = 4) -> NDArray[np.float64]:
    """Some votes that the rule can meet."""
    rng = np.random.default_rng(seed)
    if rule.mechanism is Mechanism.GNMAX:
        shares = rng.dirichlet(np.full(rule.labels, 0.5), queries)
        return np.stack([rng.multinomial(rule.teachers, one) for one in shares]).astype(float)
    share = rng.beta(0.5, 0.5, (queries, 1, rule.labels))
    ballots = rng.random((queries, rule.teachers, rule.labels)) < share
    return votes_for(rule, Ballots.of(ballots))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(rules(), st.integers(0, 10**6))
def test_knowing_more_never_costs_more(rule, seed):
    votes = voted(rule, seed)
    exact, sharpened, independent = (
        costs(rule, votes, mode) for mode in (Mode.EXACT, Mode.SHARPENED, Mode.DATA_INDEPENDENT)
    )
    # 1e-11: logarithms of moments near 1, and quadrature, over order - 1 = 0.1 at least.
    assert np.all(exact <= sharpened * (1 + 1e-9) + 1e-11)
    assert np.all(sharpened <= independent * (1 + 1e-9) + 1e-12)
    assert_allclose(sharpened, np.tile(query_curve(rule, COARSE), (len(votes), 1)), atol=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rules(), st.floats(1, 10))
def test_more_noise_never_costs_more_whatever_the_votes(rule, factor):
    noisier = replace(rule, sigma=factor * rule.sigma)
    plain, plainer = replace(rule, confidence=None), replace(noisier, confidence=None)
    for mode in ANY_VOTES:
        louder = query_curve(plainer, COARSE, mode=mode)
        assert np.all(louder <= query_curve(plain, COARSE, mode=mode) * (1 + 1e-9))
    independent = Mode.DATA_INDEPENDENT
    more = query_curve(noisier, COARSE, mode=independent)
    assert np.all(more <= query_curve(rule, COARSE, mode=independent) * (1 + 1e-9))


def test_more_noise_may_cost_more_on_given_votes_and_where_answers_are_checked():
    # A sure answer is nearly free, and noise makes it unsure.
    quiet, loud = (
        VotingRule(mechanism=Mechanism.BINARY, teachers=50, labels=1, sigma=sigma)
        for sigma in (3.0, 12.0)
    )
    sure = np.array([[48]])
    assert costs(quiet, sure, Mode.EXACT)[0, 2] < 1e-6 < costs(loud, sure, Mode.EXACT)[0, 2]
    # A check that only sure votes pass has the same effect, for the worst votes too.
    checked = [
        VotingRule(
            mechanism=Mechanism.BINARY,
            teachers=38,
            labels=1,
            sigma=sigma,
            confidence=Confidence(threshold=23.4, sigma=1.9),
        )
        for sigma in (0.78, 3.5)
    ]
    less, more = (query_curve(one, COARSE) for one in checked)
    assert np.any(more > 1.05 * less)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 40), sigmas, st.floats(1, 10))
def test_more_noise_never_costs_more_at_a_tie(half, sigma, factor):
    # Where nobody is sure anyway, noise hides: the property that exact costs do have.
    orders = tuple(COARSE)
    here = move_divergences(Answers(2 * half, sigma), orders)[0][half]
    there = move_divergences(Answers(2 * half, factor * sigma), orders)[0][half]
    assert np.all(there <= here * (1 + 1e-9))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(rules(checked=False), st.integers(0, 10**6))
def test_who_cast_which_ballot_changes_nothing(rule, seed):
    rng = np.random.default_rng(seed)
    if rule.mechanism is Mechanism.GNMAX:
        rule = replace(rule, mechanism=Mechanism.POWERSET)
    votes = rng.random((5, rule.teachers, rule.labels)) < rng.beta(0.5, 0.5, (5, 1, rule.labels))
    shuffled = rng.permuted(votes, axis=1)  # label by label: another set of ballots
    order = rng.permutation(rule.teachers)
    ballots, same = Ballots.of(votes), Ballots.of(votes[:, order])
    for mode in (Mode.EXACT, Mode.PAPERNOT):
        one, two = (
            analyse(rule, votes_for(rule, b), mode=mode, delta=1e-5) for b in (ballots, same)
        )
        assert_allclose(one.epsilons, two.epsilons, rtol=1e-12)
    # The law depends on counts alone: with equal noise, equal answers.
    first, second = (release(rule, b, rng=RepeatableBits(seed)) for b in (ballots, same))
    assert np.array_equal(first.labels, second.labels)
    if rule.mechanism is Mechanism.BINARY:
        assert np.array_equal(votes_for(rule, Ballots.of(shuffled)), votes_for(rule, ballots))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(3, 60), sigmas, st.one_of(st.none(), checks))
def test_one_label_is_two_sets(teachers, sigma, confidence):
    shared = {"teachers": teachers, "labels": 1, "sigma": sigma, "confidence": confidence}
    binary = VotingRule(mechanism=Mechanism.BINARY, **shared)
    powerset = VotingRule(mechanism=Mechanism.POWERSET, **shared)
    assert powerset.classes == 2
    yes = np.unique(np.linspace(0, teachers, 7).round())[:, None]
    sets = np.column_stack([yes, teachers - yes])
    # Two ways to the same number: a table of normal tails, and a quadrature. What may be missing
    # is added: of logarithms of chances 1e-12, more where chances are below exp(-250), and
    # order - 1 = 0.1 makes 12 times that of it.
    exact = costs(binary, yes, Mode.EXACT)
    assert_allclose(costs(powerset, sets, Mode.EXACT), exact, rtol=1e-9, atol=2e-9)
    for mode in (Mode.DATA_INDEPENDENT, Mode.PAPERNOT):
        assert_allclose(costs(powerset, sets, mode), costs(binary, yes, mode), atol=1e-12)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(rules(), st.integers(0, 10**6), st.sampled_from(ADDED_UP))
def test_epsilon_is_that_of_the_sum_and_never_falls(rule, seed, mode):
    some = voted(rule, seed)
    votes = np.tile(some, (150, 1))  # more than are added up at a time
    found = analyse(rule, votes, mode=mode, delta=1e-6, orders=COARSE)
    assert found.epsilons.shape == found.orders.shape == (600,)
    assert np.all(np.diff(found.epsilons) >= -1e-9)
    total = np.cumsum(np.tile(costs(rule, some, mode), (150, 1)), axis=0)
    for at in (0, 255, 256, 511, 512, 599):
        expected = epsilon_of(total[at], COARSE, delta=1e-6)
        assert found.epsilons[at] == pytest.approx(expected, rel=1e-7, abs=1e-9)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(rules(), st.floats(0.5, 30), st.sampled_from(ANY_VOTES))
def test_a_budget_covers_so_many_queries_and_no_more(rule, epsilon, mode):
    queries = queries_within(rule, epsilon=epsilon, delta=1e-5, mode=mode)
    curve = query_curve(rule, ORDERS, mode=mode)
    assert epsilon_of(queries * curve, ORDERS, delta=1e-5) <= epsilon * (1 + 1e-9) or not queries
    assert epsilon_of((queries + 1) * curve, ORDERS, delta=1e-5) > epsilon


@pytest.mark.parametrize("limit", [1.0, 1.3, 1.8, 2.0, 2.5, math.sqrt(8), 3.0, 4.2])
@pytest.mark.parametrize("labels", [1, 3, 8])
def test_what_one_ballot_moves_is_found_by_trying_all(limit, labels):
    for mechanism in (*CLIPPED, Mechanism.BINARY):
        whole = float(min(labels, int(limit)))
        most = {Mechanism.TOP_M: whole, Mechanism.BINARY: None}.get(mechanism, limit)
        rule = VotingRule(mechanism=mechanism, teachers=3, labels=labels, sigma=1.0, limit=most)
        every = np.zeros((2**labels, 3, labels), dtype=np.uint8)
        every[:, 0] = (np.arange(2**labels)[:, None] >> np.arange(labels)) & 1
        counts = Ballots.of(every).counts(rule)
        largest = ((counts[:, None] - counts[None]) ** 2).sum(axis=2).max()
        assert largest <= rule.squared_l2_sensitivity * (1 + 1e-12)
        long = math.ceil(limit**2 if mechanism is Mechanism.TAU_L2 else limit)
        if mechanism is Mechanism.BINARY or 2 * long <= labels:  # two disjoint ballots fit
            assert largest == pytest.approx(rule.squared_l2_sensitivity)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"teachers": 2}, "hide"),
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"labels": 0}, "labels"),
        ({"noises": 3}, "noises"),
        ({"limit": 2.0}, "no limit"),
        ({"mechanism": Mechanism.TOP_M}, "needs a limit"),
        ({"mechanism": Mechanism.TOP_M, "limit": 1.5}, "whole number"),
        ({"mechanism": Mechanism.TOP_M, "limit": 9.0}, "at most 5"),
        ({"mechanism": Mechanism.TAU_L2, "limit": 0.5}, "limit"),
        ({"mechanism": Mechanism.POWERSET, "noises": 1}, "noises is 2"),
        ({"mechanism": Mechanism.POWERSET, "labels": 63}, "at most 62"),
        ({"mechanism": Mechanism.GNMAX, "labels": 1}, "labels"),
        ({"mechanism": Mechanism.POWERSET, "counts": True}, "powerset"),
        ({"counts": True}, "noises to 1"),
        ({"counts": True, "noises": 1, "by_answers": True}, "by answers"),
        (
            {"counts": True, "noises": 1, "confidence": Confidence(threshold=30.0, sigma=3.0)},
            "threshold",
        ),
    ],
)
def test_rules_that_protect_nothing_cannot_be_built(wrong, says):
    right = {"mechanism": Mechanism.BINARY, "teachers": 50, "labels": 5, "sigma": 7.0}
    with pytest.raises(ParameterError, match=says):
        VotingRule(**{**right, **wrong})
