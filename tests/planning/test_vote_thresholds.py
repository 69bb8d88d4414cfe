"""Thresholds that are chosen: they fit, they answer what was wanted, and they need less noise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.vote_calibration import fitted
from dpal.planning.vote_thresholds import SURE, answer_chance, choose_threshold
from dpal.planning.voting_plan import VotingSpec, certify_voting, least_sigma, total_of
from dpal.privacy import PrivacyTarget
from tests.variants import quick_and_slow

RULE = VotingRule(mechanism=Mechanism.GNMAX, teachers=60, labels=5, sigma=1.0, by_answers=True)
ONE_LABEL = replace(RULE, mechanism=Mechanism.BINARY, labels=1)
SPEC = VotingSpec(
    name="v", target=PrivacyTarget(epsilon=8.0, delta=1e-5), rule=RULE, blocks=(50, 50)
)


rules = pytest.mark.parametrize(
    "rule",
    quick_and_slow([ONE_LABEL], [RULE, ONE_LABEL]),
    ids=lambda rule: rule.mechanism.value,
)


@rules
def test_a_threshold_that_is_chosen_fits_with_less_noise(rule: VotingRule) -> None:
    spec = replace(SPEC, rule=rule)
    chosen = choose_threshold(spec, 0.8)
    assert certify_voting(replace(spec, rule=chosen)).epsilon <= 8
    assert chosen.sigma < 0.7 * least_sigma(spec, 100)
    assert answer_chance(chosen, 0.8) == pytest.approx(SURE, abs=0.005)
    if rule is RULE:  # a seventh less noise would not fit: the search ends near the edge
        assert total_of(replace(spec, rule=replace(chosen, sigma=chosen.sigma / 1.15))) > 8


@pytest.mark.slow
def test_a_thousand_queries_of_250_teachers_need_little_noise() -> None:
    """28.7 without a threshold, charged by counts; whatever the votes are."""
    spec = replace(SPEC, rule=replace(RULE, teachers=250, labels=10), blocks=(1000,))
    chosen = choose_threshold(spec, 0.9)
    assert chosen.sigma < 4
    assert certify_voting(replace(spec, rule=chosen)).epsilon <= 8


@rules
def test_fitted_accounts_have_it(rule: VotingRule) -> None:
    asked = replace(SPEC, rule=rule)
    spec = fitted(asked, sigma=None, agreement=None, answer_from=0.8)
    assert spec.rule == choose_threshold(asked, 0.8)


def test_what_cannot_be_chosen_is_refused() -> None:
    with pytest.raises(ParameterError, match="adds both up"):
        choose_threshold(replace(SPEC, rule=replace(RULE, by_answers=False)), 0.8)
    with pytest.raises(ParameterError, match="chooses threshold"):
        fitted(SPEC, sigma=3.0, agreement=None, answer_from=0.8)
    with pytest.raises(PlanRejected, match="ask fewer"):
        choose_threshold(replace(SPEC, blocks=(100_000,)), 0.8)


@rules
def test_an_earlier_account_leaves_less(rule: VotingRule) -> None:
    from dpal.accounting.prior_spend import PriorSpend
    from dpal.planning.voting_plan import VotingPlan

    asked = replace(SPEC, rule=rule)
    before = PriorSpend(campaign="old", releases=tuple(VotingPlan(
        replace(SPEC, rule=replace(rule, sigma=40.0))
    ).releases()))  # fmt: skip
    later = choose_threshold(replace(asked, before=before), 0.8)
    assert later.sigma > choose_threshold(asked, 0.8).sigma
    assert total_of(replace(asked, before=before, rule=later)) <= 8
