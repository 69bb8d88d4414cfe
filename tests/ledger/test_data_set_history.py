"""Campaigns on one data set are one history; others are none of it."""

from __future__ import annotations

from contextlib import closing

import pytest

from dpal.errors import LedgerError
from dpal.ledger.data_set_accounts import Basis, data_set
from dpal.ledger.data_set_history import dataset_of, history, parts_of
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_protocol import CampaignLedger
from tests.ledger.owning import LIMIT, Owner
from tests.ledger.releasing import draw, hold


@pytest.fixture
def owner(tmp_path):
    one = Owner(tmp_path)
    with closing(one.store):
        one.registry.register("clinic", LIMIT)
        one.add("first", 600, "a")
        yield one


def run(owner: Owner, name: str, *, epsilon: float = 3.0, ends: bool = False) -> CampaignLedger:
    certified = owner.plan(epsilon, name)
    with lock_folder(owner.root / name):
        ledger = owner.hold(name, certified)
        draw(ledger, next(certified.plan.releases()))
        if ends:
            ledger.end()
    return ledger


def test_a_history_has_all_campaigns_of_the_data_set_and_no_other(owner):
    run(owner, "first", ends=True)
    run(owner, "second")
    with lock_folder(owner.root / "stranger"):
        hold(CampaignLedger(owner.store, "stranger", owner.root / "stranger"))
    owner.registry.register("hospital", LIMIT)
    entries = owner.store.entries()
    assert [dataset_of(entries, one) for one in ("first", "second", "stranger")] == [
        "clinic",
        "clinic",
        None,
    ]
    told = history(entries, "first")
    assert told == history(entries, "second")
    assert [one for one in entries if one not in told] == [
        one for one in entries if one.campaign == "stranger" or one.release == "hospital"
    ]
    alone = history(entries, "stranger")
    assert [one.kind for one in alone] == [EntryKind.OPEN, EntryKind.HOLD]


def test_shares_of_a_block_add_up_to_what_is_taken(owner):
    run(owner, "first", ends=True)
    run(owner, "second")
    entries = owner.store.entries()
    known, parts = data_set(entries, "clinic"), parts_of(entries, "clinic")
    assert [(one.campaign, one.ended) for one in parts] == [("first", True), ("second", False)]
    [block] = known.blocks
    left = block.left(LIMIT).divergence / LIMIT.filter.limit.divergence
    assert sum(one.share for one in parts) == pytest.approx(1 - left)
    assert parts[0].share < parts[1].share  # the first gave back what it did not use


def test_who_takes_a_block_alone_takes_all_of_it(owner):
    run(owner, "first", epsilon=8.0)
    [part] = parts_of(owner.store.entries(), "clinic")
    assert (part.basis, part.share) == (Basis.SOLE, 1.0)
    assert part.epsilon <= 8.0


def test_who_released_nothing_takes_nothing(owner):
    certified = owner.plan(3.0, "first")
    with lock_folder(owner.root / "first"):
        owner.hold("first", certified).end()
    assert parts_of(owner.store.entries(), "clinic") == ()


def test_an_unknown_data_set_is_refused(owner):
    with pytest.raises(LedgerError, match="wards is not"):
        parts_of(owner.store.entries(), "wards")
