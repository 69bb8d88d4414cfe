"""Answers that leave within a told bound: what bound and answers tell together, integrated."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from pytest import approx
from scipy.special import logsumexp, ndtr

from dpal.accounting.accountant_tolerance import tolerance
from dpal.accounting.cohort_spending import Accountant, campaign_epsilon, second_opinion
from dpal.accounting.events import VOTING, Charge, CostBoundedVotes, NoisyVotes, Release
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.observed_cost import cost_with_noise, require_fallback, told_cost
from dpal.accounting.votes.query_costs import answer_costs
from dpal.accounting.votes.second_opinion import epsilon_of_votes
from dpal.accounting.votes.smooth_sensitivity import smooth
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.accounting.votes.worst_winner import Winners
from dpal.errors import ParameterError
from dpal.mechanisms.sanitized_cost import SanitizingTerms
from dpal.privacy import PrivacyTarget
from dpal.randomness import secure
from dpal.voting.ballots import Ballots, Choices
from dpal.voting.check_cost_then_release import release_within
from dpal.voting.draw_noisy_outcomes import UNANSWERED
from tests.accounting.votes.test_worst_winner import divergence, law, moved
from tests.conftest import nothing_released
from tests.variants import quick_and_slow

RULE = VotingRule(mechanism=Mechanism.BINARY, teachers=4, labels=2, sigma=1.5)
BOUND = CostBound(order=3.0, beta=0.05, noise=2.0, margin=1.5, limit=0.8)
COUNTS = [np.array([pair], dtype=float) for pair in itertools.product(range(5), repeat=2)]


def neighbours(counts):
    """All counts after one ballot was replaced: each label moves by one vote at most."""
    for moves in itertools.product((-1, 0, 1), repeat=2):
        other = counts + np.array([moves])
        if ((other >= 0) & (other <= RULE.teachers)).all():
            yield other


def cost_of(rule, counts, bound):
    cost, local = told_cost(rule, counts, bound.order, by_lead=False)
    return cost, smooth(local, beta=bound.beta)


def told(counts, bound):
    """Centre and scale of the told number."""
    cost, sensitivity = cost_of(RULE, counts, bound)
    terms = SanitizingTerms(
        order=bound.order, beta=bound.beta, noise=bound.noise, margin=bound.margin
    )
    scale = terms.noise * terms.widening * sensitivity
    return cost, cost + terms.margin * scale, scale


def together(mine, other, bound):
    """Divergence of bound and answers on one pair of counts, by integration over the bound."""
    (_, centre, scale), (_, there, width) = told(mine, bound), told(other, bound)
    y = np.linspace(min(centre, there) - 14 * max(scale, width),
                    max(centre, there) + 14 * max(scale, width), 200_001)  # fmt: skip
    log_p = -(((y - centre) / scale) ** 2) / 2 - math.log(scale)
    log_q = -(((y - there) / width) ** 2) / 2 - math.log(width)
    a = bound.order
    answers = 0.0
    for v, w in zip(mine.ravel(), other.ravel(), strict=True):
        spread = math.sqrt(2) * RULE.sigma
        p, q = (ndtr((2 * one - RULE.teachers) / spread) for one in (v, w))
        answers += math.log(p**a * q ** (1 - a) + (1 - p) ** a * (1 - q) ** (1 - a))
    inside = np.where(y <= bound.limit, answers, 0.0)
    moment = logsumexp(a * log_p + (1 - a) * log_q + inside) + math.log(y[1] - y[0])
    return (moment - math.log(2 * math.pi) / 2) / (a - 1)


@pytest.mark.parametrize("limit", quick_and_slow([1.5, 1.7], [1.5, 1.7, 3.0]))
def test_no_pair_of_counts_is_further_apart_than_charged(limit):
    """Exhaustive: 25 counts and all their neighbours, in both directions.

    Seen red with the limit left out of the charge.
    """
    bound = replace(BOUND, limit=limit)
    charged, closest = bound.event.divergence, 0.0
    for mine in COUNTS:
        for other in neighbours(mine):
            cost, centre, scale = told(mine, bound)
            if cost <= limit:
                found = together(mine, other, bound)
                closest = max(closest, found)
                assert found <= charged * (1 + 1e-9)
            else:  # answers hardly ever leave
                assert ndtr((limit - centre) / scale) <= bound.failure * (1 + 1e-9)
    assert closest > 0.05 * charged  # the test is not about pairs that tell nothing


def test_the_cost_is_that_of_all_answers_and_its_bound_is_smooth():
    table = answer_costs(RULE, BOUND.order)
    assert table == approx(table[::-1])
    for mine in COUNTS:
        cost, sensitivity = cost_of(RULE, mine, BOUND)
        assert cost == approx(table[mine.astype(int)].sum())
        for other in neighbours(mine):
            there, smooth = cost_of(RULE, other, BOUND)
            assert abs(cost - there) <= min(sensitivity, smooth) * (1 + 1e-9)
            assert smooth <= math.exp(BOUND.beta) * sensitivity * (1 + 1e-9)


def ballots(agree, queries=40, teachers=60, labels=3):
    votes = np.zeros((queries, teachers, labels), dtype=np.uint8)
    votes[:, : round(agree * teachers)] = 1
    return Ballots.of(votes)


def test_agreeing_votes_leave_and_divided_ones_do_not():
    rule = VotingRule(mechanism=Mechanism.BINARY, teachers=60, labels=3, sigma=9.0)
    bound = CostBound(order=2.0, beta=0.15, noise=0.7, margin=4.0, limit=0.5)
    agreed = release_within(rule, ballots(1.0), bound, rng=secure())
    assert agreed.within
    assert (agreed.released.labels == 1).mean() > 0.99
    divided = release_within(rule, ballots(0.5), bound, rng=secure())
    assert not divided.within
    assert (divided.released.labels == UNANSWERED).all()
    assert divided.told > bound.limit


def test_only_a_cost_that_is_known_on_given_votes_can_be_told():
    other = VotingRule(mechanism=Mechanism.TOP_M, teachers=60, labels=3, sigma=9.0, limit=1)
    with pytest.raises(ParameterError, check=nothing_released):
        release_within(other, ballots(1.0), BOUND, rng=secure())


def releases(*events):
    charges = tuple(Charge(cohorts=("0",), event=one) for one in events)
    return [Release(name="votes/1", kind=VOTING, phase=0, charges=charges)]


def test_several_bounds_add_up_at_their_order_and_their_failures_in_delta():
    event = CostBoundedVotes(order=4.0, divergence=0.5, failure=1e-7)
    target = PrivacyTarget(epsilon=8, delta=1e-5)
    for count in (1, 2, 5):
        found = campaign_epsilon(releases(*[event] * count), target, accountant=Accountant.RDP)
        left = 1e-5 - count * 1e-7
        by_hand = 0.5 * count + math.log1p(-1 / 4) - (math.log(left) + math.log(4)) / 3
        assert found == approx(by_hand)
        assert found == approx(epsilon_of_votes([event] * count, delta=1e-5))
        assert found <= campaign_epsilon(releases(*[event] * count), target)  # PLD: looser
    hopeless = replace(event, failure=1e-5)
    assert math.isinf(campaign_epsilon(releases(hopeless), target, accountant=Accountant.RDP))
    assert math.isinf(epsilon_of_votes([hopeless], delta=1e-5))


@pytest.mark.parametrize("count", [1, 4, 9])
def test_both_accountants_of_counts_agree_on_bounds_beside_a_paid_summary(count):
    """Seen red, with a summary and at nine blocks, by the tolerance of smooth losses alone."""
    bounds = [CostBoundedVotes(order=3.5, divergence=1.234567, failure=1e-8)] * count
    summary = NoisyVotes(queries=1, squared_sensitivity=5, sigma=12.3)
    history = tuple(releases(summary, *bounds))
    target = PrivacyTarget(epsilon=30.0 * count, delta=1e-5)
    ours = campaign_epsilon(list(history), target)
    theirs = second_opinion(list(history), target)
    assert abs(ours - theirs) <= tolerance(history, target)


# Winners by their lead, with a fallback: seven teachers, three classes, one query.
PLURAL = VotingRule(mechanism=Mechanism.GNMAX, teachers=7, labels=3, sigma=0.8, by_answers=True)
LEADS = CostBound(order=3.0, beta=0.05, noise=2.0, margin=1.5, limit=2.0, by_lead=True)
HISTOGRAMS = [
    counts for counts in itertools.product(range(8), repeat=3) if sum(counts) == PLURAL.teachers
]


def winner_moment(counts, after, sigma):
    """Logarithm of the moment of the winner's law of one histogram over another's."""
    winners = Winners(PLURAL.teachers, PLURAL.labels, sigma)
    return 2 * divergence(law(counts, winners), law(after, winners), np.array([3.0]))[0]


def told_of_winners(counts, bound):
    cost, local = told_cost(PLURAL, np.array([counts], dtype=float), bound.order, by_lead=True)
    terms = SanitizingTerms(
        order=bound.order, beta=bound.beta, noise=bound.noise, margin=bound.margin
    )
    sensitivity = smooth(local, beta=bound.beta)
    scale = terms.noise * terms.widening * sensitivity
    return cost, sensitivity, cost + terms.margin * scale, scale


@pytest.mark.parametrize("limit", quick_and_slow([5.0], [0.9, 2.0, 3.5, 5.0]))
def test_no_pair_of_histograms_is_further_apart_than_charged_with_answers_in_any_case(limit):
    """Exhaustive: all histograms and all their neighbours, answers with more noise included.

    Seen red with half of the noise of those, and with a lead that moves by one vote a ballot.
    """
    bound = replace(LEADS, limit=limit)
    fallback = replace(bound, fallback_sigma=fallback_for(PLURAL, bound))
    require_fallback(PLURAL, 1, fallback)
    charged, closest, outside = fallback.event.divergence, 0.0, 0
    for mine in HISTOGRAMS:
        cost, sensitivity, centre, scale = told_of_winners(mine, bound)
        for other in set(moved(mine)):
            there_cost, there_sensitivity, there, width = told_of_winners(other, bound)
            smaller = min(sensitivity, there_sensitivity)
            assert abs(cost - there_cost) <= smaller * (1 + 1e-9)
            assert sensitivity <= math.exp(bound.beta) * there_sensitivity * (1 + 1e-9)
            y = np.linspace(min(centre, there) - 12 * max(scale, width),
                            max(centre, there) + 12 * max(scale, width), 20_001)  # fmt: skip
            log_p = -(((y - centre) / scale) ** 2) / 2 - math.log(scale)
            log_q = -(((y - there) / width) ** 2) / 2 - math.log(width)
            little = winner_moment(mine, other, PLURAL.sigma)
            more = winner_moment(mine, other, fallback.fallback_sigma)
            if cost > limit:  # what leaves with little noise is a failure, and no part of this
                outside += 1
                assert ndtr((limit - centre) / scale) <= bound.failure * (1 + 1e-9)
                little = -np.inf
            inside = np.where(y <= limit, little, more)
            moment = logsumexp(3 * log_p - 2 * log_q + inside) + math.log(y[1] - y[0])
            found = (moment - math.log(2 * math.pi) / 2) / 2
            closest = max(closest, found)
            assert found <= charged * (1 + 1e-9)
    assert closest > 0.3 * charged
    assert outside or limit > 4


def fallback_for(rule, bound):
    """The least noise of a coarse list whose answers cost no more than the limit."""
    for sigma in np.geomspace(0.5, 50, 60):
        if cost_with_noise(rule, 1, bound.order, float(sigma)) <= bound.limit:
            return float(sigma)
    raise AssertionError


@pytest.mark.parametrize("mechanism", [Mechanism.BINARY, Mechanism.GNMAX])
def test_divided_votes_leave_with_more_noise(mechanism):
    rule = VotingRule(mechanism=mechanism, teachers=60, labels=3, sigma=9.0)
    rule = rule.charged(by_answers=True)
    bound = CostBound(
        order=2.0, beta=0.15, noise=0.7, margin=4.0, limit=0.5, by_lead=True, fallback_sigma=400.0
    )
    chosen = np.tile(np.arange(60) % 3, (400, 1))
    if mechanism is Mechanism.GNMAX:
        divided = release_within(rule, Choices(chosen, 3), bound, rng=secure())
    else:
        divided = release_within(rule, ballots(0.5, queries=400), bound, rng=secure())
    assert not divided.within
    assert (divided.released.labels != UNANSWERED).all()
    # Unanimous votes show the noise: sigma 400 turns many of them, sigma 9 none.
    tight = replace(bound, limit=1e-9)
    unanimous = Choices(np.zeros((400, 60), dtype=np.int64), 3)
    if mechanism is Mechanism.GNMAX:
        turned = release_within(rule, unanimous, tight, rng=secure()).released.labels != 0
    else:
        turned = release_within(rule, ballots(1.0, queries=400), tight, rng=secure()).released
        turned = turned.labels == 0
    assert 0.3 < turned.mean() < 0.7
