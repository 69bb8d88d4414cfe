"""Teachers that fall silent: their records are charged for the queries that they vote on."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from dpal.accounting.budget_cohort_names import about_budget, budget_cohort, budget_cohorts_in
from dpal.accounting.cohort_spending import spending
from dpal.accounting.events import VOTING, Release
from dpal.accounting.rdp import ORDERS
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.teacher_budgets import (
    TeacherBudget,
    require_budgets,
    rule_of_stretch,
    stretch_charges,
    stretches,
)
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError
from dpal.planning.queries_per_teacher_budget import budget_epsilons, with_budgets
from dpal.planning.vote_calibration import fitted
from dpal.planning.voting_plan import VotingPlan, VotingSpec, certify_voting, total_of
from dpal.privacy import Adjacency, PrivacyTarget
from tests.variants import quick_and_slow

PLAIN = VotingRule(mechanism=Mechanism.BINARY, teachers=6, labels=1, sigma=1.1)
CHECKED = replace(PLAIN, confidence=Confidence(threshold=5.0, sigma=0.9))
QUERIES = 3
BUDGETS = (
    TeacherBudget(epsilon=0.1, teachers=(0,), queries=(1,)),
    TeacherBudget(epsilon=0.2, teachers=(2, 5), queries=(2,)),
)
SILENT = ((), (0,), (0, 2, 5))  # on the first, second and third query


def outcomes(rule, yes, voters):
    """Chances of no, yes and no answer, for counts of yes of so many voters."""
    chance = ndtr((2 * yes - voters) / (math.sqrt(2) * rule.sigma))
    given = np.ones_like(chance)
    if rule.confidence is not None:
        threshold = rule.confidence.threshold * voters / rule.teachers
        given = ndtr((np.maximum(yes, voters - yes) - threshold) / rule.confidence.sigma)
    return np.stack([given * (1 - chance), given * chance, 1 - given])


def divergences(rule, first, second, order):
    """Of all answers on votes (worlds, queries, teachers), which are drawn independently."""
    total = np.zeros(len(first))
    for query, silent in enumerate(SILENT):
        voting = [teacher for teacher in range(rule.teachers) if teacher not in silent]
        p, q = (
            outcomes(rule, world[:, query, voting].sum(axis=1), len(voting))
            for world in (first, second)
        )
        moments = np.where(p > 0, p * (p / np.maximum(q, 1e-300)) ** (order - 1), 0.0)
        total += np.log(moments.sum(axis=0)) / (order - 1)
    return total


@pytest.mark.parametrize("rule", [PLAIN, CHECKED], ids=["plain", "checked"])
@pytest.mark.parametrize("teacher", range(6))
def test_nobody_loses_more_than_its_cohort_is_charged(rule, teacher):
    """Exhaustive: all votes of six teachers on three queries, and all other ballots of one.

    Seen red where silent teachers are counted, and where the stretches are charged the wrong way
    round.
    """
    every = np.array([*itertools.product((0, 1), repeat=rule.teachers)], np.int8)
    charges = stretch_charges(rule, BUDGETS, 1, QUERIES)
    mine = next((at for at, own in enumerate(BUDGETS) if teacher in own.teachers), None)
    cohort = "0" if mine is None else budget_cohort(mine)
    own = [charge.event for charge in charges if cohort in charge.cohorts]
    curve = np.sum([event.renyi(Adjacency.ZERO_OUT) for event in own], axis=0)
    for order in (1.5, 3.0, 10.0):
        # Queries are answered independently: the worst of each add up to the worst of all.
        worst = 0.0
        for query in range(QUERIES):
            first = np.zeros((len(every), QUERIES, rule.teachers), np.int8)
            first[:, query] = every
            second = first.copy()
            second[:, query, teacher] ^= 1
            worst += float(divergences(rule, first, second, order).max())
        charged = float(curve[int(np.argmin(np.abs(ORDERS - order)))])
        assert worst <= charged * (1 + 1e-9)
        assert worst >= charged * (1 - 1e-6)  # and the worst votes reach it


def test_whole_histories_add_up_as_their_queries_do():
    """Exhaustive over 2^9 histories of three teachers that are left, and all eight other ones."""
    charges = stretch_charges(PLAIN, BUDGETS, 1, QUERIES)
    curve = np.sum([charge.event.renyi(Adjacency.ZERO_OUT) for charge in charges], axis=0)
    votes = np.zeros((512, QUERIES, 6), np.int8)
    votes[:, :, [1, 3, 4]] = np.array([*itertools.product((0, 1), repeat=9)]).reshape(-1, 3, 3)
    worst = 0.0
    for flips in itertools.product((0, 1), repeat=QUERIES):
        other = votes.copy()
        other[:, :, 1] ^= np.array(flips, np.int8)
        worst = max(worst, float(divergences(PLAIN, votes, other, 3.0).max()))
    assert worst <= float(curve[int(np.argmin(np.abs(ORDERS - 3.0)))]) * (1 + 1e-9)


def test_stretches_cover_every_query_once_and_name_who_is_silent():
    found = list(stretches(BUDGETS, 1, QUERIES))
    assert [(part.first, part.last, part.silent) for part in found] == [
        (query, query + 1, silent) for query, silent in enumerate(SILENT)
    ]
    assert [part.cohorts for part in found] == [
        ("0", "budget-1", "budget-2"), ("0", "budget-2"), ("0",),
    ]  # fmt: skip
    last = rule_of_stretch(CHECKED, found[-1])
    assert (last.teachers, last.confidence) == (3, Confidence(threshold=2.5, sigma=0.9))
    never = (replace(BUDGETS[0], queries=(0,)), replace(BUDGETS[1], queries=(3,)))
    assert [part.silent for part in stretches(never, 1, QUERIES)] == [(0,)]


TARGET = PrivacyTarget(epsilon=8.0, delta=1e-5)


def account(rule, **changes):
    spec = VotingSpec(name="a", target=TARGET, rule=rule, blocks=(60, 60), **changes)
    return fitted(spec, sigma=None, agreement=None)


RULES = {
    "labels": VotingRule(mechanism=Mechanism.BINARY, teachers=40, labels=3, sigma=1.0),
    "checked": VotingRule(
        mechanism=Mechanism.BINARY, teachers=40, labels=1, sigma=1.0,
        confidence=Confidence(threshold=30.0, sigma=10.0),
    ),
    "counts": VotingRule(mechanism=Mechanism.TAU_L2, teachers=40, labels=5, sigma=1.0, limit=1.2),
    "classes": VotingRule(
        mechanism=Mechanism.GNMAX, teachers=40, labels=5, sigma=1.0
    ).charged(by_answers=True),
}  # fmt: skip


@pytest.mark.parametrize("kind", quick_and_slow(["labels", "checked", "counts"], RULES))
def test_budgets_are_filled_and_kept_and_so_is_the_promise(kind):
    spec = with_budgets(
        account(RULES[kind]), {2.0: range(5), 5.0: [7, 9], 8.0: [20], 30.0: [21]}, sigma=None
    )
    assert [(budget.epsilon, budget.teachers) for budget in spec.budgets] == [
        (2.0, (0, 1, 2, 3, 4)), (5.0, (7, 9)),
    ]  # fmt: skip
    for spent, budget in zip(budget_epsilons(spec), spec.budgets, strict=True):
        first, second = budget.queries
        assert first == second < 60
        assert spent <= budget.epsilon
        one_more = replace(budget, queries=(first + 1, second + 1))
        more = replace(
            spec, budgets=tuple(one_more if own is budget else own for own in spec.budgets)
        )
        assert budget_epsilons(more)[spec.budgets.index(budget)] > budget.epsilon
    assert 7.9 < total_of(spec) <= 8.0
    certified = certify_voting(spec)
    assert certified.summary()["budgets"][0]["epsilon"] == 2.0
    releases = list(VotingPlan(spec).releases())
    assert budget_cohorts_in(releases) == ["budget-1", "budget-2"]
    told = spending("budget-1", releases, TARGET)
    by = told.epsilon_rdp if certified.summary()["accountant"] == "rdp" else told.epsilon_pld
    assert by == pytest.approx(budget_epsilons(spec)[0], rel=1e-9)
    alone = about_budget(releases, "budget-1")
    assert all(isinstance(release, Release) and release.kind == VOTING for release in alone)


def test_an_account_without_budgets_is_what_it_was():
    spec = account(PLAIN)
    assert with_budgets(spec, {9.0: [1], 8.0: [2]}, sigma=None) == spec
    assert VotingPlan(spec).digest == VotingPlan(replace(spec, budgets=())).digest
    assert "budgets" not in certify_voting(spec).summary()


def test_what_budgets_cannot_be_is_refused():
    for budgets in (
        (BUDGETS[1], BUDGETS[0]),  # in one order alone
        (BUDGETS[0], replace(BUDGETS[1], teachers=(0, 2))),  # one teacher in two
        (replace(BUDGETS[0], teachers=(6,)),),  # nobody
        (replace(BUDGETS[0], queries=(4,)),),  # more queries than there are
        (replace(BUDGETS[0], queries=(1, 1)),),
        (replace(BUDGETS[0], teachers=(0, 1, 2, 3)),),  # too few others
    ):
        with pytest.raises(ParameterError):
            require_budgets(PLAIN, budgets, (QUERIES,))
    with pytest.raises(ParameterError):
        replace(BUDGETS[0], teachers=())
    spec = account(RULES["labels"])
    with pytest.raises(ParameterError):
        replace(with_budgets(spec, {2.0: [0]}, sigma=None), gate=0, dependents=(1,))
