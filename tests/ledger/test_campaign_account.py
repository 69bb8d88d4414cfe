"""A campaign's account, read off entries alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpal.accounting.cohort_spending import campaign_epsilon, spending
from dpal.errors import LedgerError
from dpal.ledger.campaign_account import State, campaign_account, campaigns_in, epsilons_so_far
from dpal.ledger.entries import EntryKind
from dpal.ledger.release_json import release_record
from tests.ledger.releasing import PLAN, draw, hold, run_all


def test_it_is_what_the_ledger_itself_adds_up(ledger):
    run_all(ledger)
    account = campaign_account(ledger.store.entries(), "planned")
    spent, target = ledger.spent(), ledger.target()
    assert account.target == target
    assert [one.release for one in account.releases] == spent == list(account.planned)
    assert account.cohorts == tuple(spending(name, spent, target) for name in PLAN.cohorts)
    assert account.epsilon == campaign_epsilon(spent, target)
    assert {one.state for one in account.releases} == {State.COMMIT}
    assert (account.ended, account.data) == (None, None)
    ledger.end()
    ended = campaign_account(ledger.store.entries(), "planned")
    assert ended.ended == ended.last.sequence == account.last.sequence + 1


def test_what_was_reserved_counts_before_it_is_drawn(ledger):
    hold(ledger)
    assert campaign_account(ledger.entries(), "planned").epsilon == 0.0
    ledger.reserve(next(PLAN.releases()), inputs=[])
    account = campaign_account(ledger.entries(), "planned")
    assert [one.state for one in account.releases] == [State.RESERVE]
    assert account.epsilon > 0


def test_what_was_thrown_away_is_said_and_still_spent(ledger):
    hold(ledger)
    first = next(PLAN.releases())
    ledger.reserve(first, inputs=[])
    once = campaign_account(ledger.entries(), "planned").epsilon
    again = replace(first, name=f"{first.name}#2")
    body = {**release_record(again), "inputs": {}}
    for kind, name, content in (
        (EntryKind.RESERVE, again.name, body),
        (EntryKind.CHECKPOINT, f"{again.name}@7", {"steps": 7, "artifacts": {}}),
    ):
        ledger.store.append(campaign="planned", kind=kind, release=name, body=content)
    account = campaign_account(ledger.entries(), "planned")
    assert [(one.state, one.steps_on_disk) for one in account.releases] == [
        (State.DISCARDED, 0),
        (State.RESERVE, 7),
    ]
    assert account.epsilon > once


def test_epsilons_so_far_bound_every_beginning_of_the_campaign(ledger):
    run_all(ledger)
    account = campaign_account(ledger.entries(), "planned")
    told = epsilons_so_far(account)
    assert list(told) == [one.sequence for one in account.releases]
    values = list(told.values())
    assert values == sorted(values)
    assert values[-1] == account.epsilon
    spent = ledger.spent()
    for count, value in enumerate(values, start=1):
        # Tighter than the bound of its own beginning by no more than the grids' differences.
        assert value == pytest.approx(campaign_epsilon(spent[:count], account.target), rel=1e-3)


def test_campaigns_are_told_apart_and_strangers_refused(ledger):
    hold(ledger)
    draw(ledger, next(PLAN.releases()))
    entries = ledger.store.entries()
    assert campaigns_in(entries) == ("planned",)
    with pytest.raises(LedgerError, match="campaign other holds"):
        campaign_account(entries, "other")
