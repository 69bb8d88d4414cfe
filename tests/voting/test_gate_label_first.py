"""Dependents are free where their gate is released as absent; and the filter that pays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

from dpal.accounting.votes.adaptive_budget import VotingFilter
from dpal.accounting.votes.cost_analysis import ORDERS, query_curve
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import BudgetExceeded, DataError, ParameterError
from dpal.voting.ballots import Ballots
from dpal.voting.draw_noisy_outcomes import UNANSWERED
from dpal.voting.gate_label_first import Dependencies, release_with_gate
from tests.conftest import RepeatableBits, nothing_released

GATE = Dependencies(gate=1, dependents=(0, 3))  # 2 is asked always
RULE = VotingRule(mechanism=Mechanism.BINARY, teachers=50, labels=4, sigma=7.0)


def price(budget: VotingFilter, rule: VotingRule = RULE) -> float:
    """Of one question, at the filter's order."""
    single = VotingRule(mechanism=Mechanism.BINARY, teachers=50, labels=1, sigma=rule.sigma)
    return float(query_curve(single, np.array([budget.order]))[0])


def unanimous(*yes: bool, queries: int = 20) -> Ballots:
    return Ballots.of(np.broadcast_to(np.array(yes), (queries, 50, len(yes))))


def some(seed: int, queries: int = 60) -> Ballots:
    rng = np.random.default_rng(seed)
    share = rng.beta(0.6, 0.6, (queries, 1, 4))
    return Ballots.of(rng.random((queries, 50, 4)) < share)


def test_dependents_of_an_absent_gate_are_zero_and_free(bits):
    budget = VotingFilter(epsilon=100.0, delta=1e-5)
    # Everybody sees the dependents: they are 0 all the same, for the gate was not there.
    labels = release_with_gate(RULE, unanimous(True, False, True, True), GATE, budget, rng=bits)
    assert labels.labels.tolist() == [[0, 0, 1, 0]] * 20
    assert budget.spent == pytest.approx(20 * 2 * price(budget))


def test_dependents_of_a_present_gate_are_asked_and_paid(bits):
    budget = VotingFilter(epsilon=100.0, delta=1e-5)
    labels = release_with_gate(RULE, unanimous(True, True, False, False), GATE, budget, rng=bits)
    assert labels.labels.tolist() == [[1, 1, 0, 0]] * 20
    assert budget.spent == pytest.approx(20 * 4 * price(budget))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(1, 40), st.floats(3, 20))
def test_questions_are_counted_and_stop_by_released_answers_alone(seed, epsilon, sigma):
    rule = VotingRule(mechanism=Mechanism.BINARY, teachers=50, labels=4, sigma=sigma)
    budget = VotingFilter(epsilon=epsilon, delta=1e-5)
    ballots = some(seed)
    released = release_with_gate(rule, ballots, GATE, budget, rng=RepeatableBits(seed)).labels
    # Whoever sees nothing but what was released knows each stop and cost beforehand.
    told = VotingFilter(epsilon=epsilon, delta=1e-5)
    stopped = False
    for row in released:
        stopped = stopped or told.spent + 4 * price(told, rule) > told.limit
        assert bool((row == UNANSWERED).all()) is stopped
        if not stopped:
            assert set(row.tolist()) <= {0, 1}
            assert row[1] or not row[[0, 3]].any()
            told.spent += 2 * price(told, rule) + (2 * price(told, rule) if row[1] else 0.0)
    assert budget.spent == pytest.approx(told.spent)
    assert budget.spent <= budget.limit
    assert budget.epsilon_spent <= epsilon * (1 + 1e-12)


def test_a_gate_saves_questions(bits):
    gated, plain = (VotingFilter(epsilon=8.0, delta=1e-5) for _ in range(2))
    ballots = unanimous(False, False, True, False, queries=200)
    labels = release_with_gate(RULE, ballots, GATE, gated, rng=bits).labels
    answered = int((labels[:, 0] != UNANSWERED).sum())
    without = int(plain.limit / (4 * price(plain)))
    assert 1.8 * without < answered < len(labels)
    # The last query was begun only because all four questions were sure to be covered.
    assert gated.spent + 4 * price(gated) > gated.limit


@pytest.mark.slow
def test_a_gate_is_asked_as_any_label_is(bits):
    # The chance of yes is Phi((2 v - n) / (sqrt(2) sigma)); false alarm 1e-6. Noise wrong by a
    # fifth moves a chance of 0.36 by 0.03 at least, or eight standard errors.
    rule = VotingRule(mechanism=Mechanism.BINARY, teachers=50, labels=4, sigma=20.0)
    votes = np.broadcast_to(np.arange(50)[:, None] < [50, 20, 0, 50], (20_000, 50, 4))
    budget = VotingFilter(epsilon=1e6, delta=1e-5)
    labels = release_with_gate(rule, Ballots.of(votes), GATE, budget, rng=bits).labels
    for scale, right in ((1.0, True), (0.8, False), (1.2, False)):
        chance = ndtr(-10 / (2**0.5 * 20 * scale))
        found = stats.binomtest(int(labels[:, 1].sum()), 20_000, float(chance)).pvalue
        assert bool(found > 1e-6) is right


@pytest.mark.parametrize(
    ("gate", "dependents"), [(1, ()), (1, (1,)), (0, (1, 0)), (0, (2, 2)), (-1, (2,)), (0, (-1,))]
)
def test_a_gate_that_is_none_is_refused(gate, dependents):
    with pytest.raises(ParameterError, match="gate needs"):
        Dependencies(gate=gate, dependents=dependents)


@pytest.mark.parametrize(
    ("rule", "dependencies"),
    [
        (VotingRule(mechanism=Mechanism.TOP_M, teachers=50, labels=4, sigma=7.0, limit=2), GATE),
        (
            VotingRule(
                mechanism=Mechanism.BINARY,
                teachers=50,
                labels=4,
                sigma=7.0,
                confidence=Confidence(threshold=30, sigma=5),
            ),
            GATE,
        ),
        (RULE, Dependencies(gate=0, dependents=(4,))),
        (RULE, Dependencies(gate=4, dependents=(0,))),
    ],
)
def test_other_rules_and_other_labels_are_refused_before_anything_is_paid(rule, dependencies, bits):
    budget = VotingFilter(epsilon=8.0, delta=1e-5)
    with pytest.raises(ParameterError):
        release_with_gate(rule, some(1), dependencies, budget, rng=bits)
    with pytest.raises(DataError, check=nothing_released):
        release_with_gate(
            VotingRule(mechanism=Mechanism.BINARY, teachers=49, labels=4, sigma=7.0),
            some(1),
            GATE,
            budget,
            rng=bits,
        )
    assert budget.spent == 0.0


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.05, 30),
    st.floats(1e-9, 1e-2),
    st.lists(st.integers(1, 40), max_size=60),
    st.one_of(st.none(), st.floats(1.2, 90)),
)
def test_the_filter_never_passes_its_limit(epsilon, delta, asked, order):
    budget = VotingFilter(epsilon=epsilon, delta=delta, order=order)
    assert budget.order in ORDERS
    assert budget.epsilon_spent == 0.0
    for questions in asked:
        before = budget.spent
        if budget.affords(RULE, questions):
            budget.pay(RULE, questions)
            assert budget.spent > before
        else:
            with pytest.raises(BudgetExceeded):
                budget.pay(RULE, questions)
            assert budget.spent == before
        assert budget.spent <= budget.limit
        assert budget.epsilon_spent <= epsilon * (1 + 1e-12)


@pytest.mark.slow
def test_the_order_is_chosen_before_the_first_question():
    budget = VotingFilter(epsilon=8.0, delta=1e-5)
    order = budget.order
    best = VotingFilter(epsilon=8.0, delta=1e-5, order=order)
    others = [VotingFilter(epsilon=8.0, delta=1e-5, order=float(one)) for one in ORDERS]
    assert best.limit / best.order >= max(one.limit / one.order for one in others)
    while budget.affords(RULE, 1):
        budget.pay(RULE, 1)
        assert budget.order == order
    assert budget.epsilon_spent > 7.5
    for wrong in ({"epsilon": 0.0, "delta": 1e-5}, {"epsilon": 1.0, "delta": 1.0}):
        with pytest.raises(ParameterError):
            VotingFilter(**wrong)
