"""What was taken of a data set, by totals and by all entries."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import astuple, replace
from typing import Any

import pytest
import sqlalchemy as sa

from dpal.accounting.renyi_filter import Amount
from dpal.canonical import digest
from dpal.errors import DataBudgetExceeded, LedgerTampered
from dpal.ledger.data_set_accounts import Basis, BlockShare, data_set, register_body
from dpal.ledger.data_set_limits import DataHold, admit
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.merkle_tree_of_topics import Branches
from dpal.ledger.schema_version import TOPICS
from dpal.ledger.taken_totals import BlockTotal
from dpal.ledger.topics import shares_topic, topic_line_of
from dpal.ledger.verified_entries import EntriesSoFar
from tests.ledger import raw
from tests.ledger.owning import LIMIT
from tests.ledger.telling import tell

BLOCKS = 2
WHOLE = LIMIT.filter.limit.divergence


class Looked(Exception):
    """Nothing was to be written."""


def look(store: LedgerStore, ask: Callable[[EntriesSoFar], Any]) -> Any:
    """What a decision is told, where the next append would be made."""
    told = []

    def asked(so_far: EntriesSoFar) -> dict[str, Any]:
        told.append(ask(so_far))
        raise Looked

    with pytest.raises(Looked):
        store.append(campaign="looking", kind=EntryKind.HOLD, release="", body=asked)
    return told[-1]


def register(store: LedgerStore) -> None:
    body = {**register_body("clinic", LIMIT), "salt": "s" * 64}
    store.append(campaign="", kind=EntryKind.REGISTER, release="clinic", body=body)
    for block in range(BLOCKS):
        body = {"dataset": "clinic", "index": str(block), "block": block, "size": 600}
        store.append(campaign="", kind=EntryKind.BLOCK, release=f"clinic/part-{block}", body=body)


def taking(*amounts: float, basis: Basis = Basis.RENYI) -> DataHold:
    """So much of the first blocks, as shares of their whole budget."""
    shares = tuple(
        BlockShare(
            block=block,
            size=600,
            participation=1.0,
            basis=basis,
            amount=Amount(round(amount * WHOLE), 0),
            epsilon=3.0,
        )
        for block, amount in enumerate(amounts)
    )
    return DataHold(dataset="clinic", limit=LIMIT, shares=shares)


def hold(store: LedgerStore, campaign: str, data: DataHold) -> None:
    def admitted(so_far: EntriesSoFar) -> dict[str, Any]:
        if not data.plainly_fits(so_far):
            admit(so_far.of_data_sets("clinic"), "clinic", campaign, data.shares)
        return {"releases": [], "data": data.record()}

    store.append(campaign=campaign, kind=EntryKind.HOLD, release="", body=admitted)


def end(store: LedgerStore, campaign: str, used: DataHold) -> None:
    body = {"releases": [], "data": used.record()}
    store.append(campaign=campaign, kind=EntryKind.END, release="", body=body)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_totals_are_what_all_entries_add_up_to(tmp_path, seed):
    """Holds and ends in any order; what plainly fits is admitted, and nothing else is."""
    choose, store = random.Random(seed), LedgerStore(tmp_path / "ledger.sqlite")
    running: list[tuple[str, DataHold]] = []
    outcomes = set()
    with closing(store):
        register(store)
        for number in range(40):
            if running and choose.random() < 0.4:
                campaign, data = running.pop(choose.randrange(len(running)))
                share = choose.choice([0.0, 0.5, 1.0])
                used = (replace(one, amount=Amount(round(share * one.amount.divergence), 0))
                        for one in data.shares)  # fmt: skip
                end(store, campaign, replace(data, shares=tuple(used)))
            basis = Basis.SOLE if choose.random() < 0.2 else Basis.RENYI
            amounts = [choose.uniform(0.05, 0.6) for _ in range(choose.randint(1, BLOCKS))]
            data, campaign = taking(*amounts, basis=basis), f"campaign-{number}"
            plain = look(store, data.plainly_fits)
            outcomes.add(plain)
            if plain:
                admit(store.entries(), "clinic", campaign, data.shares)
                hold(store, campaign, data)
                running.append((campaign, data))
            else:
                with pytest.raises(DataBudgetExceeded):
                    admit(store.entries(), "clinic", campaign, data.shares)
            totals = look(store, lambda so_far: so_far.totals_of("clinic"))
            for account in data_set(store.entries(), "clinic").blocks:
                total = totals.get(account.block, BlockTotal())
                assert total.amount == account.taken
                assert total.campaigns == len(account.campaigns)
                assert (total.whole > 0) == (account.sole is not None)
    assert outcomes == {True, False}


def test_totals_that_were_altered_give_no_budget(opened, place):
    """Also where the lines and the tree are made to fit them."""
    store = opened()
    register(store)
    hold(store, "first", taking(0.9))
    topic = shares_topic("clinic")
    with store._database.writing() as connection:
        (row,) = connection.execute(sa.select(TOPICS).where(TOPICS.c.topic == topic)).all()
        *said, _ = astuple(replace(topic_line_of(row), totals='{"0":[0,0,0,0]}'))
        new = digest(said)
        connection.execute(
            sa.update(TOPICS).where(TOPICS.c.topic == topic).values(totals=said[4], digest=new)
        )
        branches = Branches()
        branches.read(connection, [topic])
        branches.put(topic, new)
        branches.write(connection)
    with pytest.raises(LedgerTampered):
        store.require_topics()
    for anew in (store, opened()):
        with pytest.raises(DataBudgetExceeded):
            hold(anew, "second", taking(0.5))
    store.require_topics()
    hold(store, "second", taking(0.05))


def test_a_hold_that_was_removed_gives_no_budget(opened, place):
    """With its lines: an end of it would else give back what nobody counts as taken."""
    store = opened()
    register(store)
    hold(store, "first", taking(0.9))
    end(store, "other", taking(0.0))
    for table in ("entry_topics", "entries"):
        raw.run(place, f"DELETE FROM {table} WHERE sequence = 5")
    for anew in (store, opened()):
        with pytest.raises(LedgerTampered):
            hold(anew, "second", taking(0.5))


def test_what_is_read_of_a_data_set_decides_as_all_entries_do(tmp_path):
    """Blocks of two campaigns, a changed limit, and entries that were lost."""
    tell(tmp_path)
    with closing(LedgerStore(tmp_path / "ledger.sqlite", create=False)) as store:
        entries = store.entries()
        read = look(store, lambda so_far: so_far.of_data_sets("clinic"))
    assert len(read) < len(entries)
    assert data_set(read, "clinic") == data_set(entries, "clinic")
