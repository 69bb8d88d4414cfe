"""What eight processes do at once; in a module of its own, for them to import."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from dpal.errors import BudgetExceeded, DataBudgetExceeded, LedgerError
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import Plan

LIMIT = 20
RACERS = 8


def spend(place: Path | str, anchors: Path, racer: int) -> int:
    """Appends until the limit that all share is reached; returns how often it could."""
    store = LedgerStore(place, anchors=anchors)

    def one_more(entries: Sequence[Entry]) -> dict[str, int]:
        spent = sum(entry.body["cost"] for entry in entries if entry.kind is EntryKind.RESERVE)
        if spent + 1 > LIMIT:
            raise BudgetExceeded("one more", spent + 1, LIMIT)
        return {"cost": 1, "spent": spent}

    won = 0
    try:
        while True:
            store.append(
                campaign=f"racer-{racer}", kind=EntryKind.RESERVE, release=f"{won}", body=one_more
            )
            won += 1
    except BudgetExceeded:
        return won
    finally:
        store.close()


def reserve_the_same(place: Path | str, anchors: Path, _racer: int) -> str:
    """Reserves what all others reserve, too; returns what it was told."""
    store = LedgerStore(place, anchors=anchors)
    try:
        store.append(campaign="c", kind=EntryKind.RESERVE, release="one", body={})
    except LedgerError as error:
        return str(error)
    finally:
        store.close()
    return ""


def hold(
    place: Path | str, root: Path, racer: int, plan: Plan, data: DataHold, start: float
) -> str:
    """Holds a plan at the moment `start`; returns what it was told, nothing if it could."""
    name = f"racer-{racer}"
    store = LedgerStore(place, anchors=root / "anchors")
    time.sleep(max(0.0, start - time.time()))
    try:
        with lock_folder(root / name):
            CampaignLedger(store, name, root / name).hold(
                plan.spec.target, plan.digest, "pool", plan.releases(), data=data
            )
    except DataBudgetExceeded as refused:
        return str(refused)
    finally:
        store.close()
    return ""
