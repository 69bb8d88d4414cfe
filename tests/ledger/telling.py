"""A ledger in which everything happened once: two campaigns on one data set, and mishaps."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dpal.config.runtime import RuntimeConfig
from dpal.errors import LedgerError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.data_set_registry import Registry
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_json import release_record
from dpal.runs.open_ledger import open_ledger
from tests.ledger.owning import LIMIT, Owner
from tests.ledger.releasing import Drawing, draw, settle

# For spreadsheets, tables with markup, terminals and browsers.
HOSTILE = '=HYPERLINK("x")[/red]\x1b[2J<script>alert(1)</script>\'"><img src=x onerror=alert(2)>'


class Anchored(Owner):
    """An owner whose ledger is the one that commands find."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = open_ledger(RuntimeConfig(artifacts=root))
        self.registry = Registry(self.store, root / "datasets")


def tell(root: Path) -> None:
    """Writes a ledger into a folder of campaigns: "first" ended, "second" under way."""
    owner = Anchored(root)
    with closing(owner.store):
        owner.registry.register("clinic", LIMIT)
        owner.add("january", 600, "a")
        plan = owner.plan(3.0)
        with lock_folder(root / "first"):
            ledger = owner.hold("first", plan)
            for one in plan.plan.releases():
                draw(ledger, one)
            ledger.end()
        owner.add("march", 400, "b")
        owner.add("april", 400, "c")  # the same contents under other names
        owner.registry.change_limit("clinic", 9.0, reason=HOSTILE)
        _go_wrong(owner)
        owner.store.append(
            campaign="",
            kind=EntryKind.ADOPT,
            release="entry-1",
            body={"key": "0", "reason": "moved", "found": "missing", "despite": None, "head": {}},
        )
    for name in ("first", "second"):
        CampaignFolder(root / name).write_record({"config": {"runtime": {}}})


def _go_wrong(owner: Anchored) -> None:
    """The second campaign: one release altered, begun again, a checkpoint on the way."""
    plan = owner.plan(4.0, name="second")
    with lock_folder(owner.root / "second"):
        ledger = owner.hold("second", plan)
        first, selection, *_ = plan.plan.releases()
        drawing = Drawing(ledger.folder / "model")
        settle(ledger, first, [drawing.path], drawing)
        drawing.path.write_text("altered")
        with pytest.raises(LedgerError, match="stays spent"):
            settle(ledger, first, [drawing.path], drawing)
        ledger.reserve(selection, inputs=[])
        again = replace(first, name=f"{first.name}#2")
        body = {**release_record(again), "inputs": {}}
        append = owner.store.append
        append(campaign="second", kind=EntryKind.RESERVE, release=again.name, body=body)
        for steps, more in ((0, {"discarded": {"model": "0"}}), (3, {})):
            append(
                campaign="second",
                kind=EntryKind.CHECKPOINT,
                release=f"{again.name}@{steps}",
                body={"steps": steps, "artifacts": {}, **more},
            )
