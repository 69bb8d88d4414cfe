"""What cohorts and the campaign spend, where the obvious path is not the dearest."""

from __future__ import annotations

import math

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon, spending
from dpal.accounting.events import (
    NEVER_SELECTED,
    SELECTION,
    TRAINING,
    Charge,
    Event,
    PhaseExposure,
    RandomizedResponse,
    Release,
)
from dpal.privacy import PrivacyTarget

TARGET = PrivacyTarget(epsilon=8, delta=1e-5)


def release(kind: str, phase: int, charges: dict[str, Event]) -> Release:
    return Release(
        name=f"phase-{phase}/{kind}",
        kind=kind,
        phase=phase,
        charges=tuple(Charge(cohorts=(who,), event=event) for who, event in charges.items()),
    )


def test_who_said_no_may_enter_when_a_shortage_is_filled_up():
    """Where nearly all say yes, "no" is the dear answer, and a path into the cohort."""
    blank = 0.9
    answers = RandomizedResponse(above=0.97, below=0.8, blank=blank)
    yes, no = math.log(0.97 / blank), math.log((1 - 0.8) / (1 - blank))
    assert no > yes
    step = PhaseExposure(steps=20, sample_rate=0.2, noise_multiplier=2.0)
    first = release(TRAINING, 0, {"0": step})
    asked = release(SELECTION, 1, {"1": answers, NEVER_SELECTED: answers})
    last = release(TRAINING, 1, {"0": step, "1": step})
    free = spending("1", [first, last], TARGET).epsilon_rdp
    whole = campaign_epsilon([first, asked, last], TARGET, accountant=Accountant.RDP)
    assert whole >= free + no - 1e-9
    assert campaign_epsilon([first, asked, last], TARGET) <= whole
