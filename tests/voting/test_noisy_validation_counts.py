"""Noisy counts that are released: their law, what a ballot moves, and what they are charged.

The bit source repeats. Had it been drawn afresh, a right sampler would fail one of the eight
comparisons of a law with a chance of at most 1e-6.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from dpal.accounting.events import NoisyVotes
from dpal.accounting.votes.cost_analysis import analyse
from dpal.accounting.votes.cost_kinds import Mode
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.teacher_budgets import TeacherBudget
from dpal.accounting.votes.voting_rule import VotingRule, noises_of
from dpal.errors import ParameterError
from dpal.mechanisms.gaussian import resolution
from dpal.planning.voting_plan import VotingSpec, certify_voting, least_sigma
from dpal.privacy import Accountant, PrivacyTarget
from dpal.voting.ballots import Ballots, Choices, surest
from dpal.voting.draw_noisy_outcomes import release
from tests.variants import quick_and_slow

FALSE_ALARM = 1e-6
TARGET = PrivacyTarget(epsilon=2.0, delta=1e-5)
RULE = VotingRule(
    mechanism=Mechanism.TOP_M, teachers=20, labels=4, sigma=5.0, limit=2, noises=1, counts=True
)
BINARY = replace(RULE, mechanism=Mechanism.BINARY, limit=None)
OWN = TeacherBudget(epsilon=1.0, teachers=(0,), queries=(3,))
CLASSES = VotingRule(mechanism=Mechanism.GNMAX, teachers=20, labels=4, sigma=5.0, counts=True)


def cast(queries: int) -> Ballots:
    """Twelve of twenty teachers say yes to the first label, five to the last."""
    one = np.zeros((20, 4), np.uint8)
    one[:12, 0] = one[15:, 3] = 1
    return Ballots.of(np.broadcast_to(one, (queries, 20, 4)))


@pytest.mark.parametrize("rule", [RULE, CLASSES], ids=["labels", "classes"])
def test_every_count_has_noise_of_its_own_with_the_law_that_is_charged(bits, rule):
    draws = 20_000
    if rule is RULE:
        ballots: Ballots | Choices = cast(draws)
        true = np.array([12.0, 0, 0, 5])
    else:
        chosen = np.repeat([0, 3], [14, 6])
        ballots, true = Choices(np.broadcast_to(chosen, (draws, 20)), 4), np.array([14.0, 0, 0, 6])
    told = release(rule, ballots, rng=bits).counts
    assert told is not None
    assert told.shape == (draws, 4)
    noise = (told - true) / rule.sigma
    for scale, right in ((1.0, True), (0.95, False)):
        assert bool(stats.kstest(noise.ravel() * scale, "norm").pvalue > FALSE_ALARM) is right
    apart = np.corrcoef(noise.T)[np.triu_indices(4, 1)] * math.sqrt(draws)
    assert np.abs(apart).max() < stats.norm.isf(FALSE_ALARM / 2 / apart.size)


def test_answers_follow_from_counts(bits):
    told = release(RULE, cast(500), rng=bits)
    assert told.counts is not None
    np.testing.assert_array_equal(told.labels, told.counts > 10)
    assert 0 < (told.labels[:, 0] == 0).sum() < 500
    chosen = release(CLASSES, Choices(np.repeat([[0, 3]], 500, 0).repeat(10, 1), 4), rng=bits)
    assert chosen.counts is not None
    np.testing.assert_array_equal(chosen.labels, chosen.counts.argmax(axis=1))


def test_counts_leave_on_a_public_grid(bits):
    told = release(RULE, cast(50), rng=bits).counts
    assert told is not None
    steps = told / resolution(RULE.sigma)
    np.testing.assert_array_equal(steps, np.rint(steps))


@pytest.mark.parametrize(
    ("mechanism", "limit"),
    [
        (Mechanism.BINARY, None),
        (Mechanism.TOP_M, 1.0),
        (Mechanism.TOP_M, 2.0),
        (Mechanism.TAU_L2, 1.0),
        (Mechanism.TAU_L2, 1.3),
        (Mechanism.TAU_L1, 1.5),
    ],
)
def test_no_two_ballots_move_the_counts_further_than_is_charged(mechanism, limit):
    rule = replace(RULE, mechanism=mechanism, limit=limit)
    every = np.array(list(product((0, 1), repeat=4)), np.uint8)
    others = np.zeros((19, 4), np.uint8)
    counts = np.concatenate(
        [Ballots.of(np.concatenate([one[None], others])[None]).counts(rule) for one in every]
    )
    moved = ((counts[:, None] - counts[None]) ** 2).sum(axis=2).max()
    (event,) = rule.events(1)
    assert isinstance(event, NoisyVotes)
    charged = event.squared_sensitivity * rule.sigma**2 / event.sigma**2
    assert moved <= charged * (1 + 1e-12)
    assert moved >= 0.85 * charged  # scaled ballots of four labels do not reach their bound


@pytest.mark.parametrize("rule", [RULE, CLASSES], ids=["labels", "classes"])
@pytest.mark.parametrize("queries", [1, 30])
def test_they_cost_what_one_gaussian_release_costs(rule, queries):
    """By the exact profile of the Gaussian mechanism (Balle and Wang 2018), computed here."""
    moved = 4 if rule is RULE else 2  # two positives become two others; one class becomes another
    spec = VotingSpec(name="votes", rule=rule, blocks=(queries,), target=TARGET)
    sigma = least_sigma(spec, queries)
    certified = certify_voting(replace(spec, rule=replace(rule, sigma=sigma)))
    mu = math.sqrt(queries * moved) / sigma

    def beyond(epsilon: float) -> float:
        here = stats.norm.cdf(mu / 2 - epsilon / mu)
        return float(here - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)) - 1e-5

    exact = brentq(beyond, 1e-6, 50)
    assert certified.plan.accountant is Accountant.PLD
    assert exact <= certified.epsilon + 1e-9
    assert certified.epsilon <= 2.0
    assert certified.epsilon_oracle == pytest.approx(exact, abs=5e-3)
    assert exact > 1.99  # nothing is left lying


@pytest.mark.parametrize("rule", quick_and_slow([RULE], [RULE, CLASSES]), ids=["labels", "classes"])
def test_they_are_never_charged_by_what_answers_tell(rule):
    assert not rule.tells_sides
    assert not rule.tells_winners
    assert not rule.charged(by_answers=True).by_answers
    answers = replace(rule, counts=False).charged(by_answers=True)
    spec = VotingSpec(name="votes", rule=rule, blocks=(50,), target=TARGET)
    assert least_sigma(spec, 50) > 1.1 * least_sigma(replace(spec, rule=answers), 50)


def test_two_classes_are_charged_by_their_counts_too():
    two = replace(CLASSES, labels=2)
    assert not two.charged(by_answers=True).tells_sides


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gate": 0, "dependents": (1,)}, "charged in full"),
        (
            {"budgets": (TeacherBudget(epsilon=1.0, teachers=(0,), queries=(3,)),)},
            "charged in full",
        ),
    ],
)
def test_nothing_is_saved_on_counts(change: dict[str, Any], says: str):
    rule = replace(RULE, mechanism=Mechanism.BINARY, limit=None)
    with pytest.raises(ParameterError, match=says):
        VotingSpec(name="votes", rule=rule, blocks=(5,), target=TARGET, **change)


@pytest.mark.parametrize("rule", [RULE, CLASSES, BINARY], ids=["top_m", "classes", "binary"])
@pytest.mark.parametrize("mode", [Mode.EXACT, Mode.PAPERNOT])
def test_no_votes_make_counts_cheaper(rule, mode):
    """All teachers agree: answers would cost next to nothing, and counts what they always do."""
    votes = np.tile([20.0, 0, 0, 0], (3, 1))
    told = analyse(rule, votes, mode=mode, delta=1e-5).epsilons
    always = analyse(rule, votes, mode=Mode.DATA_INDEPENDENT, delta=1e-5).epsilons
    np.testing.assert_allclose(told, always)
    answers = replace(rule, counts=False)
    assert analyse(answers, votes, mode=mode, delta=1e-5).epsilons[-1] < 0.99 * always[-1]


def test_one_noise_for_each_count_of_yes():
    assert noises_of(Mechanism.TOP_M, counts=True, noises=2) == 1
    assert noises_of(Mechanism.TOP_M, counts=False, noises=2) == 2
    assert noises_of(Mechanism.GNMAX, counts=True) == 2


def test_a_ballot_keeps_what_its_teacher_is_surest_of():
    above = np.array([[0.2, 0.4, 0.1, -0.1], [-0.3, -0.1, 0.2, -0.2], [0.3, 0.3, 0.3, 0.3]])
    assert surest(above, 2).tolist() == [
        [True, True, False, False],
        [False, False, True, False],
        [True, True, False, False],
    ]
    assert (surest(above, None) == (above > 0)).all()
    assert (surest(above, 4) == (above > 0)).all()
