"""One limit over all campaigns: holds, what flows back, and who may not pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import TRAINING, Charge, PhaseExposure, Release
from dpal.accounting.renyi_filter import RenyiFilter
from dpal.errors import DataBudgetExceeded, LedgerError, ParameterError
from dpal.ledger.data_set_accounts import Basis, BlockShare, data_set, data_sets
from dpal.ledger.data_set_limits import DataHold, refusal
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.planning.fit_plan_into_blocks import plan_within
from dpal.privacy import Adjacency, PrivacyTarget, Unit
from tests.conftest import having, nothing_released, small_spec
from tests.ledger.owning import LIMIT
from tests.ledger.releasing import draw


def test_a_campaign_holds_its_worst_case_of_every_block_first(owner):
    certified = owner.plan()
    with lock_folder(owner.root / "first"):
        owner.hold("first", certified)
    (block,) = owner.blocks
    assert block.campaigns == ("first",)
    assert block.taken == certified.plan.spec.blocks[0].amount
    assert block.epsilon_taken(LIMIT) <= 3.0


def test_the_same_campaign_held_twice_takes_once(owner):
    certified = owner.plan()
    with lock_folder(owner.root / "first"):
        owner.hold("first", certified)
        owner.hold("first", certified)
    assert owner.blocks[0].taken == certified.plan.spec.blocks[0].amount


def test_campaigns_planned_at_the_same_time_cannot_both_take_the_rest(owner):
    names = [f"c{number}" for number in range(6)]
    plans = {name: owner.plan(name=name) for name in names}  # all planned on a full budget
    held = []
    for name in names:
        with lock_folder(owner.root / name):
            try:
                owner.hold(name, plans[name])
                held.append(name)
            except DataBudgetExceeded as refused:
                assert nothing_released(refused)
                assert "c0, c1" in str(refused)
    assert 2 <= len(held) < 6
    assert owner.blocks[0].taken.within(LIMIT.filter.limit)


def test_what_a_campaign_did_not_use_flows_back_when_it_ends(owner):
    certified = owner.plan()
    with lock_folder(owner.root / "first"):
        ledger = owner.hold("first", certified)
        before = owner.blocks[0].taken
        first = next(certified.plan.releases())
        draw(ledger, first)
        ledger.end()
        ledger.end()
        used = LIMIT.filter.charge([first], Adjacency.ZERO_OUT)
        assert owner.blocks[0].taken == used
        assert used.divergence < before.divergence
        with pytest.raises(LedgerError, match="gave back"):
            draw(ledger, list(certified.plan.releases())[1])
        with pytest.raises(LedgerError, match="gave back"):
            owner.hold("first", certified)  # nobody is asked for labels in vain


def test_after_visible_answers_only_what_every_record_could_still_lose_flows_back(owner):
    """Whoever saw the answers may have chosen to end; the sum of what was released is less."""
    certified = owner.plan()
    with lock_folder(owner.root / "first"):
        ledger = owner.hold("first", certified)
        (held,) = certified.plan.spec.blocks
        first, answers, *_ = releases = list(certified.plan.releases())
        for release in (first, answers):
            draw(ledger, release)
        ledger.end()
    (share,) = owner.ended("first").shares
    assert share.amount == LIMIT.filter.charge_of_ended(
        releases, [first, answers], Adjacency.ZERO_OUT
    )
    released = LIMIT.filter.charge([first, answers], Adjacency.ZERO_OUT)
    assert released.divergence < share.amount.divergence <= held.amount.divergence
    # Nor is the tight epsilon of what was released a bound for somebody who chose the end.
    assert share.epsilon == min(held.epsilon, LIMIT.filter.epsilon_of(share.amount))


def test_what_was_drawn_again_is_covered_by_what_was_held_and_by_no_epsilon_of_the_plan():
    """At one divergence, steps on whole cohorts cost more than those on some of their records."""
    dear, cheap = (
        PhaseExposure(steps=steps, sample_rate=rate, noise_multiplier=noise)
        for steps, rate, noise in ((10, 1.0, 2.99), (200, 0.05, 1.0))
    )
    first, _ = planned = [
        Release(name=f"phase-{phase}/training", kind=TRAINING, phase=phase,
                charges=(Charge(cohorts=cohorts, event=event),))
        for phase, (cohorts, event) in enumerate([(("0",), dear), (("0", "1"), cheap)])
    ]  # fmt: skip
    limit = replace(LIMIT, filter=RenyiFilter.fitted(8.0, 1e-5))
    target = PrivacyTarget(epsilon=8.0, delta=1e-5, adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)
    share = BlockShare(
        block=0,
        size=600,
        participation=1.0,
        basis=Basis.RENYI,
        amount=limit.filter.charge(planned, target.adjacency),
        epsilon=campaign_epsilon(planned, target),
    )
    held = DataHold(dataset="clinic", limit=limit, shares=(share,))
    again = [first, replace(first, name=f"{first.name}#2")]
    held.require_covers(planned, again, target)  # so that nobody refuses the second attempt
    (used,) = held.used_by(planned, again, target).shares
    assert used.epsilon >= campaign_epsilon(again, target) > share.epsilon
    (used,) = held.used_by(planned, [first], target).shares
    assert used.epsilon <= share.epsilon, "ended early, and nothing was drawn again"


def test_a_campaign_that_released_nothing_leaves_no_trace_in_the_budget(owner):
    with lock_folder(owner.root / "first"):
        owner.hold("first", owner.plan()).end()
    assert owner.blocks[0].is_untouched


@pytest.mark.slow
def test_a_finished_campaign_gives_nothing_back(owner):
    certified = owner.plan()
    with lock_folder(owner.root / "first"):
        ledger = owner.hold("first", certified)
        for one in certified.plan.releases():
            draw(ledger, one)
        before = owner.blocks[0].taken
        with pytest.raises(DataBudgetExceeded, check=lambda error: error.running == "first"):
            owner.plan(8.0, name="late")
        ledger.end()
    assert owner.blocks[0].taken == before
    with pytest.raises(DataBudgetExceeded, check=lambda error: error.running == ""):
        owner.plan(8.0, name="late")  # so nobody is told to wait for it


def test_the_first_and_only_campaign_may_take_all_by_its_tight_certificate(owner):
    certified = owner.plan(8.0)
    (share,) = certified.plan.spec.blocks
    assert share.basis is Basis.SOLE
    with lock_folder(owner.root / "first"):
        owner.hold("first", certified)
    with pytest.raises(
        DataBudgetExceeded, check=having(taken=LIMIT.filter.epsilon, holders="first", running="")
    ):
        owner.plan(0.5, name="second")  # whose end would give nothing back


def test_a_refusal_names_some_of_many_campaigns_and_says_how_many_there_are(owner):
    (share,) = owner.plan(1.0).plan.spec.blocks
    registered = data_set(owner.store.entries(), "clinic")
    for count, named in ((5, "c0, c1, c2, c3, c4"), (85, "c0, c1, c2, c3, c4 and 80 more")):
        many = tuple(f"c{number}" for number in range(count))
        account = replace(registered.blocks[0], campaigns=many)
        assert refusal(registered, account, "late", share).holders == named


@pytest.mark.slow
def test_who_is_not_the_first_cannot_take_all(owner):
    alone = owner.plan(8.0)
    with lock_folder(owner.root / "first"):
        owner.hold("first", owner.plan(1.0))
    with lock_folder(owner.root / "late"), pytest.raises(DataBudgetExceeded):
        owner.hold("late", alone)
    with pytest.raises(DataBudgetExceeded, check=lambda error: 5 <= error.fits < 8):
        owner.plan(8.0, name="late")


def test_new_records_are_a_block_with_full_budget_and_old_ones_get_what_is_left(owner):
    with lock_folder(owner.root / "first"):
        owner.hold("first", owner.plan(5.0))
    added = owner.add("second", 400, "b")
    assert (added.block, added.new, added.known) == (1, 400, 0)
    old, new = owner.plan(5.0, name="second").plan.spec.blocks
    assert (new.participation, old.size, new.size) == (1.0, 600, 400)
    assert 0.1 <= old.participation < 1.0
    taken = owner.blocks[0].taken + old.amount
    assert taken.within(LIMIT.filter.limit)
    # A thousandth more would not fit.
    more = LIMIT.filter.charge(
        list(owner.plan(5.0, name="second").plan.releases()),
        Adjacency.ZERO_OUT,
        participation=old.participation + 0.001,
    )
    assert not (owner.blocks[0].taken + more).within(LIMIT.filter.limit)


def test_a_block_with_next_to_nothing_left_sits_out(owner):
    with lock_folder(owner.root / "first"):
        owner.hold("first", owner.plan(8.0))
    owner.add("second", 400, "b")
    spec = owner.plan(3.0, name="second").plan.spec
    assert [one.block for one in spec.blocks] == [1]
    assert spec.pool_size == 400
    assert spec.participation(0) == 0.0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"participation": 0.5, "amount": "less"}, "of block 0"),
        ({"basis": Basis.SOLE, "epsilon": 1.0}, "of block 0"),
    ],
)
def test_no_planner_is_trusted_with_its_own_share(owner, change, match):
    certified = owner.plan()
    (share,) = certified.plan.spec.blocks
    if change.get("amount") == "less":
        change = {"amount": replace(share.amount, divergence=share.amount.divergence // 2)}
    lying = certified.with_blocks((replace(share, **change),))
    with lock_folder(owner.root / "first"), pytest.raises(LedgerError, match=match):
        owner.hold("first", lying)
    assert owner.blocks[0].is_untouched


def test_limits_change_by_the_owner_alone_and_never_below_what_is_taken(owner):
    with lock_folder(owner.root / "first"):
        owner.hold("first", owner.plan(5.0))
    with pytest.raises(LedgerError, match="cannot be 2"):
        owner.registry.change_limit("clinic", 2.0, reason="savings")
    raised = owner.registry.change_limit("clinic", 12.0, reason="board")
    assert raised.filter.order == LIMIT.filter.order
    owner.registry.change_limit("clinic", 11.0, reason="board, again")
    assert data_sets(owner.store.entries())["clinic"].limit.filter.epsilon == 11.0
    assert [e.body["reason"] for e in owner.store.entries() if e.kind is EntryKind.LIMIT] == [
        "board",
        "board, again",
    ]
    with pytest.raises(LedgerError, match="limit clinic"):
        owner.registry.register("clinic", LIMIT)


def test_registering_twice_is_registering_once(owner):
    before = len(owner.store.entries())
    owner.registry.register("clinic", LIMIT)
    assert len(owner.store.entries()) == before


def test_adjacency_and_unit_are_the_data_sets(owner):
    with pytest.raises(ParameterError, match="adjacency zero_out"):
        known = data_set(owner.store.entries(), "clinic")
        spec = small_spec(privacy={"adjacency": "replace_one", "selection": "visible"})
        plan_within(lambda taking: spec, known, {0: 600})


def test_an_unregistered_data_set_says_how_to_register_it(owner):
    with pytest.raises(LedgerError, match=r"not registered .* \(clinic known\)"):
        data_set(owner.store.entries(), "hospital")
