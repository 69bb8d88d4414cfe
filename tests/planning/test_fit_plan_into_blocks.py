"""Shares of releases that every record takes part in: the whole charge, or a refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon
from dpal.accounting.renyi_filter import Amount, RenyiFilter
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import DataBudgetExceeded, ParameterError
from dpal.ledger.data_set_accounts import Basis, BlockAccount, DataSet, Limit
from dpal.planning.fit_plan_into_blocks import hold_in_full
from dpal.planning.vote_calibration import fitted
from dpal.planning.voting_plan import VotingPlan, VotingSpec
from dpal.privacy import Adjacency, PrivacyTarget, Unit

TARGET = PrivacyTarget(epsilon=4.0, delta=1e-4, adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)
RULE = VotingRule(mechanism=Mechanism.BINARY, teachers=20, labels=3, sigma=1.0)
LIMIT = Limit(filter=RenyiFilter.fitted(8.0, 1e-4), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)


def votes(target=TARGET, blocks=(10, 10)):
    spec = VotingSpec(name="votes", target=target, rule=RULE, blocks=blocks)
    return list(VotingPlan(fitted(spec, sigma=None, agreement=None)).releases())


def data_set(*taken: Amount | None, limit: Limit = LIMIT) -> DataSet:
    """A data set whose blocks have these amounts taken; None for nobody."""
    blocks = tuple(
        BlockAccount(block=at, size=50)
        if one is None
        else BlockAccount(block=at, size=50, taken=one, campaigns=("first",))
        for at, one in enumerate(taken)
    )
    return DataSet(name="clinic", limit=limit, salt="", index=(), blocks=blocks)


def shares(known, releases, target=TARGET, sizes=None):
    sizes = sizes or {one.block: one.size for one in known.blocks}
    return hold_in_full("votes", releases, target, known, sizes, accountant=Accountant.RDP)


def test_every_block_of_the_pool_is_charged_the_whole():
    releases = votes()
    amount = LIMIT.filter.charge(releases, Adjacency.ZERO_OUT)
    data = shares(data_set(None, amount, None), releases, sizes={0: 7, 1: 50, 2: 0})
    assert [(one.block, one.size) for one in data.shares] == [(0, 7), (1, 50)]
    epsilon = campaign_epsilon(releases, TARGET, accountant=Accountant.RDP)
    for one in data.shares:
        assert (one.participation, one.basis, one.amount) == (1.0, Basis.RENYI, amount)
        assert one.epsilon == pytest.approx(epsilon)
    data.require_covers(releases, releases, TARGET)


def test_one_unit_too_little_in_any_block_is_a_refusal():
    releases, whole = votes(), LIMIT.filter.limit
    amount = LIMIT.filter.charge(releases, Adjacency.ZERO_OUT)
    enough = whole - amount
    assert shares(data_set(None, enough), releases).shares[1].amount == amount
    with pytest.raises(DataBudgetExceeded) as refusal:
        shares(data_set(None, enough + Amount(1, 0)), releases)
    assert refusal.value.block == "block 1 of data set clinic"
    assert refusal.value.holders == "first"


def test_a_block_is_taken_whole_only_where_nothing_was_taken_of_it():
    target = replace(TARGET, epsilon=8.0)
    releases = votes(target)
    assert not LIMIT.filter.charge(releases, Adjacency.ZERO_OUT).within(LIMIT.filter.limit)
    (share,) = shares(data_set(None), releases, target).shares
    assert (share.basis, share.epsilon) == (Basis.SOLE, 8.0)
    with pytest.raises(DataBudgetExceeded):
        shares(data_set(Amount(1, 0)), releases, target)
    for larger in (replace(target, epsilon=8.01), replace(target, delta=1.1e-4)):
        with pytest.raises(DataBudgetExceeded):
            shares(data_set(None), releases, larger)


@pytest.mark.parametrize(
    "other", [{"adjacency": Adjacency.REPLACE_ONE}, {"unit": Unit.GROUP}], ids=str
)
def test_another_promise_than_the_limit_is_refused(other):
    with pytest.raises(ParameterError, match="adjacency zero_out"):
        shares(data_set(None), votes(), replace(TARGET, **other))


def test_answers_within_a_bound_have_no_divergence_at_the_data_sets_order():
    bound = CostBound(order=LIMIT.filter.order, beta=0.02, noise=20.0, margin=3.0, limit=0.5)
    spec = VotingSpec(name="votes", target=TARGET, rule=RULE, blocks=(10,), bound=bound)
    with pytest.raises(ParameterError, match=r"leave voting\.agreement out"):
        shares(data_set(None), list(VotingPlan(spec).releases()))
