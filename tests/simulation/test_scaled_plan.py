from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpal.acquisition.selection import QueryHistory, select
from dpal.errors import ParameterError
from dpal.planning.campaign_spec import LabelCap
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.selection_steps import HiddenGate, RandomDraw, VisibleAnswers
from dpal.simulation.scaled_plan import scaled_plan
from tests.conftest import RepeatableBits, small_spec

SCHEDULE = {"initial": 1000, "queries": [400, 400], "batch_size": 300, "epochs_per_phase": 3}


def planned(selection: str):
    spec = small_spec(
        20_000, strategy="naive", acquisition="margin", schedule=SCHEDULE,
        privacy={"selection": selection},
    )  # fmt: skip
    return certified_plan(spec).plan


@pytest.fixture(scope="module")
def plans():
    return {selection: planned(selection) for selection in ("hidden", "visible", "paper")}


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["hidden", "visible", "paper"])
def test_a_mean_gradient_is_as_noisy_as_in_the_plan(plans, selection):
    plan = plans[selection]
    smaller = scaled_plan(plan, 1200)  # half of them are a third of 1,800 labels
    assert [phase.cohort_size for phase in smaller.phases] == [333, 133, 133]
    assert smaller.spec.schedule.cohort_sizes == (333, 133, 133)
    assert smaller.spec.pool_size == 1200
    for phase, full in zip(smaller.phases, plan.phases, strict=True):
        ours, theirs = phase.training, full.training
        assert ours.noise_multiplier / ours.expected_batch_size == pytest.approx(
            theirs.noise_multiplier / theirs.expected_batch_size
        )
        assert ours.expected_batch_size == pytest.approx(theirs.expected_batch_size / 3)
        assert (ours.steps, ours.sample_rate_old, ours.sample_rate_new) == (
            theirs.steps, theirs.sample_rate_old, theirs.sample_rate_new,
        )  # fmt: skip


@pytest.mark.slow
def test_a_gate_keeps_its_reserve_in_proportion(plans):
    full = plans["hidden"].phases[1].selection
    gate = scaled_plan(plans["hidden"], 1200).phases[1].selection
    assert isinstance(gate, HiddenGate)
    assert gate.count_noise == pytest.approx(full.count_noise / 3)
    assert gate.aim == round(full.aim / 3)
    assert gate.label_cap is LabelCap.SUM
    for ours, theirs in [(gate.cap, full.cap), (gate.limit, full.limit)]:
        assert ours == round(theirs / 3)
    assert gate.aim_in_all < gate.limit < gate.cap


@pytest.mark.parametrize("selection", ["hidden", "visible", "paper"])
def test_a_smaller_selection_buys_what_it_says(plans, selection):
    """The chance of yes of single records is that of the smaller pool's share.

    Fixed seeds. With the plan's own chances visible answers would say yes to 18 of 867, and fill
    133 places by chance.
    """
    phase = scaled_plan(plans[selection], 1200).phases[1]
    step, sizes = phase.selection, []
    for seed in range(20):
        scores = np.random.default_rng(seed).random(1200 - 333)
        scored = iter([(np.arange(scores.size), scores)])
        history = QueryHistory(left=scores.size, public_scores=np.linspace(0, 1, 400))
        chosen = select(
            step, scored, phase.cohort_size, width=1.0, rng=RepeatableBits(seed), history=history
        )
        sizes.append(chosen.rows.size)
    assert max(sizes) <= phase.most_labels
    reserve = plans[selection].phases[1].selection.aim / 400 if selection == "hidden" else 1
    assert np.mean(sizes) == pytest.approx(reserve * phase.cohort_size, rel=0.1)
    if isinstance(step, VisibleAnswers):
        above = step.aim / 867
        says_yes = above * step.answers.above + (1 - above) * step.answers.below
        assert says_yes == pytest.approx(133 / 867, rel=0.05)


def test_records_enough_leave_the_plan_as_it_is(plans):
    plan = plans["hidden"]
    assert plan.spec.secret_draw
    # In a rehearsal nothing is to be kept secret: chance draws the planned number.
    first, *later = plan.phases
    for records in (5000, 50_000):
        phases = scaled_plan(plan, records).phases
        chance = RandomDraw(candidates=plan.spec.candidates)
        assert phases == (replace(first, selection=chance), *later)


def test_a_pool_that_is_labeled_nearly_whole_stays_so():
    spec = small_spec(2000, strategy="naive", acquisition="random", schedule=SCHEDULE)
    smaller = scaled_plan(certified_plan(spec).plan, 1000)
    assert sum(phase.cohort_size for phase in smaller.phases) == 900


def test_too_few_public_records_are_refused(plans):
    assert min(phase.cohort_size for phase in scaled_plan(plans["hidden"], 90).phases) == 10
    with pytest.raises(ParameterError, match="90 records"):
        scaled_plan(plans["hidden"], 80)
