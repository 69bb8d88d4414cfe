"""A small plan, and how tests hold, draw and settle its releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dpal.accounting.events import Release
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import Plan
from dpal.planning.certify_campaign import certified_plan
from tests.conftest import small_spec

PLAN = certified_plan(
    small_spec(strategy="naive", privacy={"selection": "paper"}, schedule__queries=[40])
).plan
SELECTION, TRAINING = "phase-1/selection", "phase-1/training"


def hold(ledger: CampaignLedger, plan: Plan = PLAN, pool: str = "abc") -> None:
    ledger.hold(plan.spec.target, plan.digest, pool, plan.releases())


def release(name: str) -> Release:
    found = PLAN.release(name)
    assert found is not None
    return found


def settle(
    ledger: CampaignLedger,
    one: Release,
    artifacts: list[Path],
    draw: Callable[[], None],
    inputs: Sequence[Path] = (),
) -> None:
    ledger.release_once(one, draw, inputs=list(inputs), artifacts=artifacts)


class Drawing:
    """Counts how often a release is drawn; writes one file each time."""

    def __init__(self, path: Path) -> None:
        self.path, self.times = path, 0

    def __call__(self) -> None:
        self.times += 1
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(f"drawn {self.times}")


def draw(ledger: CampaignLedger, one: Release) -> None:
    """Draws a release, whatever it is, into a file of its name."""
    path = ledger.folder / one.name.replace("/", "-")
    settle(ledger, one, [path], Drawing(path))


def run_all(ledger: CampaignLedger, plan: Plan = PLAN) -> None:
    hold(ledger, plan)
    for one in plan.releases():
        draw(ledger, one)
