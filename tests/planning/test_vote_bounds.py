"""Bounds that are chosen without the votes keep the promise, whatever the guess."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.vote_bounds import choose_bound, sigma_for
from dpal.planning.vote_calibration import fitted
from dpal.planning.voting_plan import VotingSpec, certify_voting, least_sigma
from dpal.privacy import PrivacyTarget
from tests.conftest import nothing_released

RULE = VotingRule(mechanism=Mechanism.BINARY, teachers=200, labels=6, sigma=20.0)
TARGET = PrivacyTarget(epsilon=4, delta=1e-6)
SPEC = VotingSpec(name="votes", target=TARGET, rule=RULE, blocks=(300,))


@pytest.mark.parametrize("agreement", [0.6, 0.9, 0.99])
@pytest.mark.parametrize("blocks", [1, 3])
def test_whatever_the_guess_the_promise_is_kept(agreement, blocks):
    bound = choose_bound(RULE, 300, TARGET, agreement=agreement, blocks=blocks).bound
    spec = replace(SPEC, blocks=(300,) * blocks, bound=bound)
    certified = certify_voting(spec)
    assert 0.99 * TARGET.epsilon < certified.epsilon <= TARGET.epsilon
    assert certified.epsilon_oracle == pytest.approx(certified.epsilon, abs=1e-6)


def test_agreement_saves_noise():
    usual = least_sigma(SPEC, 300)
    bounded = fitted(SPEC, sigma=None, agreement=0.95)
    assert bounded.bound is not None
    assert bounded.rule.sigma < 0.6 * usual
    certify_voting(bounded)


def test_a_limit_above_what_is_left_is_refused():
    bound = choose_bound(RULE, 300, TARGET, agreement=0.9).bound
    with pytest.raises(PlanRejected, match="lower its limit"):
        certify_voting(replace(SPEC, bound=replace(bound, limit=bound.limit + 0.1)))


def test_what_cannot_be_told_is_refused():
    truncated = replace(RULE, mechanism=Mechanism.TOP_M, limit=1)
    with pytest.raises(ParameterError, check=nothing_released):
        fitted(replace(SPEC, rule=truncated), sigma=None, agreement=0.9)
    with pytest.raises(ParameterError, match="one size"):
        fitted(replace(SPEC, blocks=(100, 50)), sigma=None, agreement=0.9)
    with pytest.raises(PlanRejected, check=nothing_released):
        choose_bound(RULE, 300, replace(TARGET, epsilon=0.01), agreement=0.9)


def test_a_check_of_confidence_is_part_of_what_is_told():
    checked = replace(RULE, confidence=Confidence(threshold=120, sigma=30))
    sigma = sigma_for(checked, 50, TARGET, agreement=0.95)
    assert choose_bound(replace(checked, sigma=sigma), 50, TARGET, agreement=0.95).room > 0
