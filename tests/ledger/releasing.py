"""A small plan, and how tests hold, draw and settle its releases."""

from __future__ import annotations

from pathlib import Path

from dpal.accounting.events import Release
from dpal.ledger.reservations import CampaignLedger
from dpal.planning.naive import plan_naive
from dpal.planning.plan import Plan
from tests.planning.specs import campaign

PLAN = plan_naive(campaign(queries=(500,)))
SELECTION, TRAINING = "phase-1/selection", "phase-1/training"


def hold(ledger: CampaignLedger, plan: Plan = PLAN, pool: str = "abc") -> None:
    ledger.hold(plan.spec.target, plan.digest, pool, plan.releases())


def release(name: str) -> Release:
    found = PLAN.release(name)
    assert found is not None
    return found


def settle(ledger: CampaignLedger, one: Release, artifacts: list[Path], draw, inputs=()) -> None:
    ledger.settle(one, draw, inputs=list(inputs), artifacts=artifacts)


class Drawing:
    """Counts how often a release is drawn; writes one file each time."""

    def __init__(self, path: Path) -> None:
        self.path, self.times = path, 0

    def __call__(self) -> None:
        self.times += 1
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(f"drawn {self.times}")


def run_all(ledger: CampaignLedger) -> None:
    hold(ledger)
    for one in PLAN.releases():
        path = ledger.folder / one.name.replace("/", "-")
        settle(ledger, one, [path], Drawing(path))
