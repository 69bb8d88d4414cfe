"""Trainings in steps, as ledger tests make them: no model, every step leaves a mark."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from dpal.accounting.cohort_spending import Accountant
from dpal.ledger.attempt_checkpoints import ReservedSteps
from dpal.ledger.entries import EntryKind
from dpal.ledger.release_protocol import CampaignLedger
from dpal.ledger.training_releases import TrainingRelease
from dpal.planning.campaign_plan import Plan
from tests.ledger.releasing import PLAN

NAME = "phase-0/training"
STEPS = PLAN.phases[0].steps
FOLDER = Path("phase-0", "checkpoints")


def quiet(plan: Plan) -> Plan:
    """Noise so strong that the promise has room for many attempts."""
    training = replace(plan.phases[0].training, noise_multiplier=20.0)
    return Plan(plan.spec, (replace(plan.phases[0], training=training), *plan.phases[1:]))


QUIET = quiet(PLAN)


def begin(ledger: CampaignLedger, plan: Plan = QUIET, name: str = NAME) -> TrainingRelease:
    """A training release of a held plan. Rényi bounds: they take no time."""
    ledger.hold(plan.spec.target, plan.digest, "pool", plan.releases(), accountant=Accountant.RDP)
    one = plan.release(name)
    assert one is not None
    folder = ledger.folder / f"phase-{one.phase}"
    pool = ledger.folder / "pool"
    pool.write_text("cohorts")
    return TrainingRelease(
        ledger=ledger,
        release=one,
        inputs=[pool],
        artifacts=[folder / "optimizer.safetensors", folder / "model.safetensors"],
        checkpoints=folder / "checkpoints",
    )


class Training:
    """Makes steps that carry their number and noise of their own, and persists every other."""

    def __init__(self, *, every: int = 2, stop: int | None = None, total: int = STEPS) -> None:
        self.every, self.stop, self.total = every, stop, total
        self.made: list[int] = []

    def __call__(self, steps: ReservedSteps) -> dict[str, bytes]:
        path = json.loads(steps.state.read_bytes()) if steps.state else []
        assert [number for number, _ in path] == list(range(1, steps.done + 1))
        for number in range(steps.done + 1, self.total + 1):
            if number == self.stop:
                raise KeyboardInterrupt
            steps.require(number)
            self.made.append(number)
            path.append([number, secrets.token_hex(8)])
            if number % self.every == 0 and number < self.total:
                steps.persist(json.dumps(path).encode(), {"part": 0, "steps": number})
        return {"optimizer.safetensors": b"o", "model.safetensors": json.dumps(path).encode()}


def story(ledger: CampaignLedger) -> list[tuple[str, str]]:
    return [
        (one.kind.value, one.release) for one in ledger.entries() if one.kind is not EntryKind.HOLD
    ]


def interrupted(one: TrainingRelease, *, at: int, every: int = 2) -> None:
    with pytest.raises(KeyboardInterrupt):
        one.release_once(Training(every=every, stop=at))


def lose(path: Path) -> None:
    path.unlink()


def alter(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")
