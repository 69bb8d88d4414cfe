"""Accounts of teachers: the least noise that fits, block by block, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.accounting.cohort_spending import Accountant
from dpal.accounting.events import VOTING
from dpal.accounting.prior_spend import PriorSpend, total_epsilon
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.voting_plan import (
    SUMMARY,
    VotingPlan,
    VotingSpec,
    block_name,
    certify_voting,
    equal_blocks,
    least_sigma,
    least_summary_sigma,
    most_queries,
    total_of,
)
from dpal.privacy import Adjacency, PrivacyTarget, Unit
from tests.conftest import having, nothing_released

TARGET = PrivacyTarget(epsilon=2.0, delta=1e-5, adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)
RULES: dict[Mechanism, dict[str, Any]] = {
    Mechanism.BINARY: {},
    Mechanism.TOP_M: {"limit": 1},
    Mechanism.TAU_L2: {"limit": 1.2},
    Mechanism.POWERSET: {},
    Mechanism.GNMAX: {},
}


def spec(mechanism=Mechanism.BINARY, blocks=(30,), target=TARGET, sigma=1.0, **others):
    rule = VotingRule(mechanism=mechanism, teachers=20, labels=5, sigma=sigma, **RULES[mechanism])
    return VotingSpec(name="v", target=target, rule=rule, blocks=blocks, **others)


def fitted(given: VotingSpec) -> VotingSpec:
    sigma = least_sigma(given, sum(given.blocks))
    return replace(given, rule=replace(given.rule, sigma=sigma))


@pytest.mark.parametrize("mechanism", RULES)
@pytest.mark.parametrize("blocks", [(30,), (10, 10, 10), (28, 2)])
def test_the_least_noise_keeps_the_promise_however_queries_are_split(mechanism, blocks):
    """Also as the ledger and the certificate add it up: release by release."""
    found = fitted(spec(mechanism, blocks))
    certified = certify_voting(found)
    assert certified.epsilon <= 2.0
    assert certified.epsilon > 1.98  # or it would not be the least
    assert certified.epsilon_oracle == pytest.approx(certified.epsilon, abs=0.02)
    releases = list(certified.plan.releases())
    assert [one.name for one in releases] == [block_name(at + 1) for at in range(len(blocks))]
    assert {one.kind for one in releases} == {VOTING}
    for until in range(1, len(releases) + 1):
        spent = total_epsilon(None, releases[:until], TARGET, accountant=found.promise_accountant)
        assert spent <= 2.0


def test_noise_is_found_also_where_the_search_begins_with_losses_that_cannot_be_counted():
    promise = replace(TARGET, epsilon=250.0)
    found = fitted(spec(Mechanism.TAU_L2, (200,), target=promise))
    assert 249 < total_of(found) <= 250


def test_answers_are_kept_by_renyi_bounds_and_noisy_counts_by_losses():
    assert spec(Mechanism.BINARY).promise_accountant is Accountant.RDP
    assert spec(Mechanism.GNMAX).promise_accountant is Accountant.PLD
    assert spec(Mechanism.GNMAX, accountant=Accountant.RDP).promise_accountant is Accountant.RDP


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 60), st.sampled_from([Mechanism.BINARY, Mechanism.GNMAX]))
def test_the_most_queries_are_those_that_the_least_noise_covers(queries, mechanism):
    found = fitted(spec(mechanism, (queries,)))
    assert most_queries(found) == queries
    assert total_of(found) <= 2.0 < total_of(replace(found, blocks=(queries + 1,)))


def test_more_noise_and_fewer_queries_cost_less():
    costs = [total_of(spec(sigma=sigma, target=replace(TARGET, epsilon=50.0)))
             for sigma in (5, 10, 20)]  # fmt: skip
    assert costs == sorted(costs, reverse=True)
    fewer = [total_of(spec(sigma=10.0, blocks=(queries,))) for queries in (5, 30, 80)]
    assert fewer == sorted(fewer)


def test_what_was_released_before_counts():
    first = fitted(spec(target=replace(TARGET, epsilon=1.0)))
    before = PriorSpend(campaign="first", releases=tuple(VotingPlan(first).releases()))
    second = fitted(spec(before=before))
    assert second.rule.sigma > fitted(spec()).rule.sigma
    assert certify_voting(second).epsilon <= 2.0
    alone = replace(second, before=PriorSpend())
    assert total_of(alone) < total_of(second)
    with pytest.raises(PlanRejected, match="30 queries"):
        fitted(spec(before=before, target=replace(TARGET, epsilon=0.9)))


def test_a_summary_is_charged_first():
    only = spec(blocks=(), summary_sigma=1.0)
    sigma = least_summary_sigma(only)
    certified = certify_voting(replace(only, summary_sigma=sigma))
    assert 1.95 < certified.epsilon <= 2.0
    both = spec(summary_sigma=sigma * 2, sigma=60.0)
    assert [one.name for one in VotingPlan(both).releases()] == [SUMMARY, "votes/1"]
    assert total_of(both) > total_of(replace(both, summary_sigma=None))


def test_a_confidence_check_costs_as_well():
    rule = spec(Mechanism.GNMAX, sigma=20.0).rule
    checked = replace(rule, confidence=Confidence(threshold=12.0, sigma=30.0))
    plain = spec(Mechanism.GNMAX, sigma=20.0)
    assert total_of(replace(plain, rule=checked)) > total_of(plain)


def test_too_much_is_rejected_with_what_would_fit():
    with pytest.raises(
        PlanRejected, match=r"30 queries .* at most \d+ fit", check=nothing_released
    ):
        certify_voting(spec(sigma=20.0))
    with pytest.raises(PlanRejected, match="raise sigma"):
        certify_voting(spec(sigma=0.5))


def test_what_a_certificate_could_not_state_is_refused_before_it_costs():
    """Rényi bounds of answers take any noise; the other accountant gives up beyond 600."""
    loud = spec(blocks=(60,), target=replace(TARGET, epsilon=2000.0), sigma=0.55)
    with pytest.raises(ParameterError, match="beyond 600"):
        certify_voting(loud)


def test_a_delta_that_rounding_hides_is_refused_before_it_costs():
    """Rényi bounds take any delta; a certificate could not state the other accountant's figure."""
    tiny = fitted(spec(Mechanism.TOP_M, target=replace(TARGET, delta=1e-13)))
    with pytest.raises(PlanRejected, check=nothing_released):
        certify_voting(tiny)


@pytest.mark.parametrize("blocks", [(), (0,), (5, 0)])
def test_an_account_has_queries(blocks):
    with pytest.raises(ParameterError):
        spec(blocks=blocks)


def test_a_bound_is_for_votes_whose_cost_can_be_told():
    bound = CostBound(order=3.0, beta=0.05, noise=2.0, margin=4.0, limit=0.3)
    assert spec(Mechanism.GNMAX, bound=bound).events(5) == (bound.event,)
    with pytest.raises(ParameterError, match="top_m voting like"):
        spec(Mechanism.TOP_M, bound=bound)


def test_the_digest_commits_to_every_number():
    one = VotingPlan(spec())
    others = [
        spec(sigma=1.1),
        spec(blocks=(29, 1)),
        spec(target=replace(TARGET, delta=2e-5)),
        spec(teachers="others"),
        spec(summary_sigma=4.0),
        replace(spec(), gate=0, dependents=(1,)),
    ]
    digests = {one.digest, *(VotingPlan(other).digest for other in others)}
    assert len(digests) == len(others) + 1
    assert one.digest == VotingPlan(spec()).digest


def test_the_least_noise_with_a_check_is_looked_for_below_what_all_answers_would_want():
    """Few votes pass a threshold of 240 of 250: a tenth of the noise is enough."""
    rule = VotingRule(
        mechanism=Mechanism.BINARY,
        teachers=250,
        labels=5,
        sigma=1.0,
        confidence=Confidence(threshold=240.0, sigma=30.0),
    )
    target = replace(TARGET, epsilon=8.0)
    asked = replace(spec(blocks=(500,), target=target), rule=rule)
    sigma = least_sigma(asked, 500)
    assert sigma < 1.6  # 11.8 was found before

    def cost(noise):
        return total_of(replace(asked, rule=replace(rule, sigma=noise)))

    assert cost(sigma) <= asked.target.epsilon < cost(0.97 * sigma)


def test_blocks_are_counted_before_they_are_laid_out():
    with pytest.raises(ParameterError, check=having(parameter="blocks")):
        equal_blocks(10, 100_000_000)
    assert equal_blocks(10, 3) == (10, 10, 10)
