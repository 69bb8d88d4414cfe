"""Eight processes want one data set's budget at the same moment."""

from __future__ import annotations

import time

from dpal.accounting.renyi_filter import NOTHING
from dpal.data.sources import Role, open_source
from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.data_set_registry import Registry
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import write_blobs
from tests.ledger.owning import LIMIT, Owner
from tests.ledger.racing import RACERS, hold


def test_eight_processes_never_take_more_than_the_limit_together(racers, place, tmp_path):
    store = LedgerStore(place, anchors=tmp_path / "anchors")
    registry = Registry(store, tmp_path / "datasets")
    registry.register("clinic", LIMIT)
    path = write_blobs(tmp_path / "pool.parquet", 600, seed=1)
    registry.add("clinic", open_source(path, Role.POOL, label_column="label"))
    planner = Owner.__new__(Owner)
    planner.store = store
    certified = planner.plan(3.0)
    store.close()

    plan = certified.plan
    data = DataHold(dataset="clinic", limit=LIMIT, shares=plan.spec.blocks)
    moment = time.time() + 1
    runs = [
        racers.apply_async(hold, (place, tmp_path, racer, plan, data, moment))
        for racer in range(RACERS)
    ]
    # A deadlock would be a timeout here, and a crash its own error.
    said = {f"racer-{racer}": run.get(timeout=60) for racer, run in enumerate(runs)}

    store = LedgerStore(place, anchors=tmp_path / "anchors")
    try:
        entries = store.entries()
        (block,) = data_set(entries, "clinic").blocks
    finally:
        store.close()
    held = {name for name, outcome in said.items() if not outcome}
    assert held == {entry.campaign for entry in entries if entry.kind is EntryKind.HOLD}
    share = certified.plan.spec.blocks[0].amount
    total = sum((share for _ in held), NOTHING)
    assert block.taken == total
    assert total.within(LIMIT.filter.limit)
    assert not (total + share).within(LIMIT.filter.limit)  # nobody was refused for nothing
    for name in said.keys() - held:
        assert said[name].startswith(f"campaign {name} would take block 0")
        assert "\n" not in said[name]
