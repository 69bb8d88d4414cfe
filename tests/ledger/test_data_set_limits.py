"""The promise is kept by the ledger, whatever a plan says."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon
from dpal.errors import BudgetExceeded, LedgerError
from dpal.ledger.entries import EntryKind
from dpal.planning.campaign_plan import CertifiedPlan, Plan
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.selection_steps import HiddenGate
from tests.conftest import having, nothing_released, small_spec
from tests.ledger.releasing import PLAN, Drawing, draw, hold, run_all, settle
from tests.variants import quick_and_slow

MODES = ["hidden", "visible", "paper"]


@cache
def planned(mode: str) -> CertifiedPlan:
    return certified_plan(
        small_spec(strategy="naive", privacy={"selection": mode}, schedule__queries=[200, 200])
    )


def louder(plan: Plan, phase: int, noise: float) -> Plan:
    """A plan that no verifier saw: one phase trains with other noise than was solved for."""
    phases = list(plan.phases)
    training = replace(phases[phase].training, noise_multiplier=noise)
    phases[phase] = replace(phases[phase], training=training)
    return Plan(plan.spec, tuple(phases))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_what_the_ledger_adds_up_is_what_was_certified(ledger, mode):
    """Events go through JSON and back, and nothing is lost on the way."""
    certified = planned(mode)
    run_all(ledger, certified.plan)
    assert ledger.spent() == list(certified.plan.releases())
    # Three trainings and two queries; whom a hidden campaign draws at first is a release as well.
    assert len(ledger.spent()) == (6 if mode == "hidden" else 5)
    epsilon = campaign_epsilon(ledger.spent(), ledger.target())
    assert epsilon == pytest.approx(certified.epsilon_pld, abs=1e-12)
    assert epsilon <= 8


@pytest.mark.parametrize(
    ("mode", "accountant"),
    quick_and_slow(
        [("hidden", Accountant.PLD), ("visible", Accountant.RDP)], product(MODES, Accountant)
    ),
)
def test_a_release_that_does_not_fit_is_refused_and_nothing_is_drawn(ledger, mode, accountant):
    """Everything up to the last training fits; that one alone breaks the promise."""
    plan = louder(planned(mode).plan, 2, 0.4)
    # At other phases a plan that was solved by PLD may not pass by Rényi bounds.
    plan = louder(louder(plan, 0, 5.0), 1, 5.0)
    ledger.hold(plan.spec.target, plan.digest, "pool", plan.releases(), accountant=accountant)
    *earlier, last = plan.releases()
    for one in earlier:
        draw(ledger, one)
    before, drawing = ledger.entries(), Drawing(ledger.folder / "x")
    with pytest.raises(
        BudgetExceeded, match=r"phase-2/training could take .* of the 8\.0000"
    ) as no:
        settle(ledger, last, [drawing.path], drawing)
    assert drawing.times == 0
    assert not drawing.path.exists()
    assert ledger.entries() == before
    reached = campaign_epsilon([*ledger.spent(), last], plan.spec.target, accountant=accountant)
    assert (no.value.requested, no.value.limit) == (reached, 8.0)


def test_a_selection_that_does_not_fit_is_refused(ledger):
    """The threshold of a gate has noise; with hardly any, its counts tell too much."""
    plan = planned("hidden").plan
    phase = plan.phases[1]
    assert isinstance(phase.selection, HiddenGate)
    threshold = replace(phase.selection.threshold, noise_multiplier=0.3)
    loud = replace(phase, selection=replace(phase.selection, threshold=threshold))
    plan = Plan(plan.spec, (plan.phases[0], loud))
    hold(ledger, plan)
    initial, first, second, _ = plan.releases()
    draw(ledger, initial)
    draw(ledger, first)
    drawing = Drawing(ledger.folder / "x")
    with pytest.raises(BudgetExceeded, check=having(release="phase-1/selection")):
        settle(ledger, second, [drawing.path], drawing)
    assert drawing.times == 0


def test_the_first_release_is_not_free(ledger):
    plan = louder(PLAN, 0, 0.3)
    hold(ledger, plan)
    drawing = Drawing(ledger.folder / "x")
    with pytest.raises(BudgetExceeded):
        settle(ledger, next(plan.releases()), [drawing.path], drawing)
    assert [entry.kind for entry in ledger.entries()] == [EntryKind.HOLD]


def test_an_overflow_above_delta_is_never_affordable(ledger):
    """Chances of breaking a label budget count as delta; more than all of it is refused."""
    plan = planned("hidden").plan
    phase = plan.phases[1]
    assert isinstance(phase.selection, HiddenGate)
    threshold = replace(phase.selection.threshold, failure_probability=2 * plan.spec.target.delta)
    leaking = replace(phase, selection=replace(phase.selection, threshold=threshold))
    plan = Plan(plan.spec, (plan.phases[0], leaking))
    hold(ledger, plan)
    initial, first, second, _ = plan.releases()
    draw(ledger, initial)
    draw(ledger, first)
    with pytest.raises(BudgetExceeded, check=having(requested=math.inf)):
        draw(ledger, second)


def test_a_held_release_cannot_be_altered_on_its_way(ledger):
    """Same name, cheaper charges: the ledger compares with what it holds."""
    hold(ledger)
    first = next(PLAN.releases())
    cheaper = replace(first, charges=())
    drawing = Drawing(ledger.folder / "x")
    with pytest.raises(LedgerError, match="not part of the plan"):
        settle(ledger, cheaper, [drawing.path], drawing)
    assert drawing.times == 0


def test_the_refusal_survives_a_worker():
    refused = pickle.loads(pickle.dumps(BudgetExceeded("phase-1/training", 9.5, 8.0)))
    assert (refused.release, refused.requested, refused.limit) == ("phase-1/training", 9.5, 8.0)
    assert "9.5000 of the 8.0000" in str(refused)
    assert nothing_released(refused) and refused.code == "budget-exceeded"
