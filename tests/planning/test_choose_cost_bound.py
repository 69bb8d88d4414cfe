"""Bounds that are chosen without the votes keep the promise, whatever the guess."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from dpal.accounting.events import VOTING, Charge, Release
from dpal.accounting.prior_spend import PriorSpend
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.canonical import plain
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.choose_cost_bound import (
    LESS_AGREEMENT,
    SURE,
    choose_bound,
    leave_chance,
    less_agreed,
    shares_of,
    sigma_for,
)
from dpal.planning.vote_calibration import fitted
from dpal.planning.voting_plan import COHORT, VotingSpec, certify_voting
from dpal.privacy import PrivacyTarget
from tests.conftest import nothing_released
from tests.variants import quick_and_slow

RULE = VotingRule(mechanism=Mechanism.BINARY, teachers=200, labels=6, sigma=20.0)
TARGET = PrivacyTarget(epsilon=4, delta=1e-6)
SPEC = VotingSpec(name="votes", target=TARGET, rule=RULE, blocks=(300,))


WINNERS = VotingRule(
    mechanism=Mechanism.GNMAX, teachers=250, labels=10, sigma=10.0, by_answers=True
)
DIGITS = replace(SPEC, rule=WINNERS, target=PrivacyTarget(epsilon=8, delta=1e-6), blocks=(1_000,))


@pytest.mark.parametrize(
    ("mechanism", "blocks", "agreement"),
    quick_and_slow(
        [("binary", blocks, agreement) for blocks in (1, 3) for agreement in (0.6, 0.9, 0.99)],
        product(["binary", "gnmax"], [1, 3], [0.6, 0.9, 0.99]),
    ),
)
def test_whatever_the_guess_the_promise_is_kept(mechanism, blocks, agreement):
    rule = RULE if mechanism == "binary" else replace(WINNERS, sigma=30.0)
    bound = choose_bound(rule, 300, TARGET, shares=shares_of(agreement), blocks=blocks).bound
    spec = replace(SPEC, rule=rule, blocks=(300,) * blocks, bound=bound)
    certified = certify_voting(spec)
    assert 0.99 * TARGET.epsilon < certified.epsilon <= TARGET.epsilon
    assert certified.epsilon_oracle == pytest.approx(certified.epsilon, abs=1e-6)


@pytest.mark.parametrize("spec", quick_and_slow([SPEC], [SPEC, DIGITS]), ids=["binary", "gnmax"])
def test_agreement_saves_noise_and_its_chance_is_told_beforehand(spec):
    usual = fitted(spec, sigma=None, agreement=None).rule.sigma
    bounded = fitted(spec, sigma=None, agreement=0.95)
    assert bounded.bound is not None
    assert bounded.rule.sigma < 0.6 * usual
    said = certify_voting(bounded).summary()["agreement"]
    assert said["shares"] == list(shares_of(0.95))
    chances = list(said["leave"].values())
    assert len(chances) == len(LESS_AGREEMENT)
    assert chances[0] >= SURE
    assert chances == sorted(chances, reverse=True)


def test_one_number_is_the_mean_of_shares_some_of_which_are_nearly_ties():
    for agreement in (0.6, 0.75, 0.9, 0.97):
        shares = shares_of(agreement)
        assert sum(shares) / len(shares) == pytest.approx(agreement, abs=0.005)
        assert 0.5 <= min(shares) < agreement < max(shares) <= 1
    assert shares_of([0.5, 1]) == (0.5, 1.0)
    assert less_agreed((0.51, 0.9), 0.02) == pytest.approx((0.5, 0.88))
    for wrong in (0.5, 1.0, [], [0.4], [1.01]):
        with pytest.raises(ParameterError):
            shares_of(wrong)


@pytest.mark.slow
def test_near_ties_decide_and_are_not_averaged_away():
    # Seen red with the cost of the mean share in place of the mean of costs.
    ties = sigma_for(WINNERS, 1_000, DIGITS.target, shares=[0.5] + [1.0] * 9)
    alike = sigma_for(WINNERS, 1_000, DIGITS.target, shares=[0.95] * 10)
    assert ties > 3 * alike


@pytest.mark.parametrize("spec", quick_and_slow([SPEC], [SPEC, DIGITS]), ids=["binary", "gnmax"])
@pytest.mark.parametrize("agreement", [[0.5], [0.5, 0.52, 0.54]], ids=["ties", "near"])
def test_where_the_plain_way_needs_no_more_noise_there_is_no_bound(spec, agreement):
    usual = fitted(spec, sigma=None, agreement=None)
    guessed = fitted(spec, sigma=None, agreement=agreement)
    assert guessed.bound is None
    assert guessed.rule == usual.rule
    assert "leave" not in certify_voting(guessed).summary()["agreement"]


@pytest.mark.slow
def test_a_sigma_that_fits_any_votes_needs_no_bound():
    plenty = fitted(DIGITS, sigma=40.0, agreement=0.9)
    assert plenty.bound is None
    assert plenty.rule.sigma == 40.0
    little = fitted(DIGITS, sigma=9.0, agreement=0.9)
    assert little.bound is not None
    assert little.rule.sigma == 9.0


@pytest.mark.slow
def test_answers_above_the_limit_leave_with_noise_that_any_votes_are_safe_with():
    spec = fitted(DIGITS, sigma=None, agreement=0.9)
    assert spec.bound is not None
    plain = fitted(DIGITS, sigma=None, agreement=None).rule.sigma
    assert spec.bound.fallback_sigma is not None
    assert plain < spec.bound.fallback_sigma < 1.5 * plain
    # Seen red where the limit was not compared with what they cost.
    with pytest.raises(ParameterError, check=nothing_released):
        replace(spec, bound=replace(spec.bound, fallback_sigma=0.9 * spec.bound.fallback_sigma))


@pytest.mark.slow
@pytest.mark.parametrize("asked", [SPEC, DIGITS], ids=["binary", "gnmax"])
def test_what_was_paid_before_leaves_less_for_the_bound(asked):
    (event,) = replace(WINNERS, sigma=120.0).events(1_000)
    earlier = PriorSpend(
        campaign="summary",
        releases=(
            Release(
                name="s", kind=VOTING, phase=0, charges=(Charge(cohorts=(COHORT,), event=event),)
            ),
        ),
    )
    alone = fitted(asked, sigma=None, agreement=0.9)
    after = fitted(replace(asked, before=earlier), sigma=None, agreement=0.9)
    assert alone.bound is not None
    assert after.bound is not None
    assert after.rule.sigma > alone.rule.sigma
    certified = certify_voting(after)
    assert certified.epsilon <= asked.target.epsilon
    # Without what was paid before it is less, by what that costs at the same order.
    assert certify_voting(replace(after, before=PriorSpend())).epsilon < certified.epsilon - 0.1


def test_an_account_of_an_earlier_version_keeps_its_bound():
    told = replace(choose_bound(RULE, 300, TARGET, shares=[0.9]).bound, fallback_sigma=None)
    again = fitted(SPEC, sigma=None, agreement=0.9, earlier=(17.0, told))
    assert again.bound == told
    assert again.rule.sigma == 17.0
    assert again.agreement == ()
    assert set(plain(told)) == {"order", "beta", "noise", "margin", "limit"}


def test_a_limit_above_what_is_left_is_refused():
    bound = choose_bound(RULE, 300, TARGET, shares=[0.9]).bound
    with pytest.raises(PlanRejected, match="lower its limit"):
        certify_voting(replace(SPEC, bound=replace(bound, limit=bound.limit + 0.1)))


def test_what_cannot_be_told_is_refused():
    truncated = replace(RULE, mechanism=Mechanism.TOP_M, limit=1)
    with pytest.raises(ParameterError, check=nothing_released):
        fitted(replace(SPEC, rule=truncated), sigma=None, agreement=0.9)
    with pytest.raises(ParameterError, check=nothing_released):
        fitted(replace(SPEC, blocks=(100, 50)), sigma=None, agreement=0.9)
    with pytest.raises(PlanRejected, check=nothing_released):
        choose_bound(RULE, 300, replace(TARGET, epsilon=0.01), shares=[0.9])


def test_a_check_of_confidence_is_part_of_what_is_told():
    checked = replace(RULE, confidence=Confidence(threshold=120, sigma=30))
    sigma = sigma_for(checked, 50, TARGET, shares=[0.95])
    chosen = choose_bound(replace(checked, sigma=sigma), 50, TARGET, shares=[0.95])
    assert chosen.chance >= SURE
    fresh = leave_chance(replace(checked, sigma=sigma), chosen.bound, 50, [0.95])
    assert fresh == pytest.approx(chosen.chance)
