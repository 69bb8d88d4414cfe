"""What was spent before counts towards every reservation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpal.accounting.events import (
    GUIDANCE,
    NEVER_SELECTED,
    TRAINING,
    Charge,
    NoisyCounts,
    PhaseExposure,
    Release,
)
from dpal.accounting.prior_spend import Declared, PriorSpend, total_epsilon
from dpal.errors import BudgetExceeded
from dpal.ledger.campaign_account import campaign_account, epsilons_so_far
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.hold_entry import before_from, before_record, spent_before
from dpal.ledger.release_protocol import CampaignLedger
from dpal.privacy import PrivacyTarget
from tests.ledger.releasing import draw

STEPS = PhaseExposure(steps=300, sample_rate=0.02, noise_multiplier=1.2)
TRAINED = Release(
    name="phase-0/training",
    kind=TRAINING,
    phase=0,
    charges=(Charge(cohorts=("0",), event=STEPS),),
)
VOTES = Release(
    name="near-private/support",
    kind=GUIDANCE,
    phase=0,
    charges=(Charge(cohorts=("0", NEVER_SELECTED), event=NoisyCounts(epsilon=0.5)),),
)
BEFORE = PriorSpend(campaign="begun", releases=(TRAINED,))
WIDE = PrivacyTarget(epsilon=8.0, delta=1e-5)
TOTAL = total_epsilon(BEFORE, [VOTES], WIDE)


def hold(ledger: CampaignLedger, epsilon: float, before: PriorSpend | None = BEFORE) -> None:
    ledger.hold(replace(WIDE, epsilon=epsilon), "plan", "pool", [VOTES], before=before)


def test_a_release_fits_only_beside_what_was_spent_before(ledger):
    hold(ledger, TOTAL + 1e-3)
    draw(ledger, VOTES)
    assert len(ledger.spent()) == 1


def test_a_release_that_fits_alone_and_not_together_is_refused(ledger):
    hold(ledger, TOTAL - 1e-2)
    with pytest.raises(BudgetExceeded):
        draw(ledger, VOTES)
    assert ledger.spent() == []
    assert not (ledger.folder / "near-private-support").exists()  # nothing was drawn


def test_without_a_before_the_same_release_fits(ledger):
    hold(ledger, TOTAL - 1e-2, before=None)  # so that the refusal above is for what came before
    draw(ledger, VOTES)


def test_a_start_that_was_drawn_again_in_the_meantime_costs_more(ledger, tmp_path):
    hold(ledger, TOTAL + 1e-3)
    with lock_folder(tmp_path / "begun"):
        begun = CampaignLedger(ledger.store, "begun", tmp_path / "begun")
        again = replace(TRAINED, name="phase-0/training#2")
        begun.hold(WIDE, "start", "pool", [TRAINED])
        for one in (TRAINED, again):
            begun.reserve(one, inputs=[])
    held = ledger.entries()[0].body
    before = spent_before(held, ledger.store.entries())
    assert before is not None
    assert [one.name for one in before.releases] == ["phase-0/training", "phase-0/training#2"]
    with pytest.raises(BudgetExceeded):
        draw(ledger, VOTES)


def test_declared_costs_are_added(ledger):
    declared = PriorSpend(declared=Declared(epsilon=7.6, delta=5e-6))
    hold(ledger, 8.0, before=declared)
    with pytest.raises(BudgetExceeded):
        draw(ledger, VOTES)


def test_it_stands_in_the_hold_and_in_the_account(ledger):
    hold(ledger, TOTAL + 1e-3)
    draw(ledger, VOTES)
    held = ledger.entries()[0].body
    assert before_from(held["before"]) == BEFORE
    assert before_from(before_record(BEFORE)) == BEFORE
    assert before_from(None) is None
    account = campaign_account(ledger.store.entries(), "planned")
    assert account.epsilon == pytest.approx(TOTAL, abs=1e-9)
    assert account.before == BEFORE
    by_cohort = {one.cohort: one.epsilon_pld for one in account.cohorts}
    assert by_cohort["0"] == pytest.approx(TOTAL, abs=1e-3)
    assert by_cohort[NEVER_SELECTED] == pytest.approx(0.5, abs=0.01)
    assert list(epsilons_so_far(account).values())[-1] == pytest.approx(TOTAL, abs=1e-9)


def test_a_hold_without_it_is_written_as_before(ledger):
    hold(ledger, 8.0, before=None)
    assert "before" not in ledger.entries()[0].body  # older versions read it


def test_holding_again_changes_nothing(ledger):
    hold(ledger, 8.0)
    hold(ledger, 8.0)
    assert len(ledger.entries()) == 1
    assert isinstance(ledger.folder, Path)
