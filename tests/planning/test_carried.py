"""Labels of an earlier campaign: the initial cohort was chosen, so it pays for being counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpal.accounting.events import NoisyThreshold
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import Acquisition, SelectionMode, Strategy
from dpal.planning.certify_campaign import certified_plan
from dpal.privacy import Adjacency, PrivacyTarget
from tests.planning.specs import campaign

SIZES: dict[str, Any] = {
    "initial": 2000,
    "queries": (800, 800),
    "batch_size": 256,
    "pool_size": 10_000,
}


def wishes(selection: SelectionMode, *, carries: bool):
    spec = campaign(selection=selection, strategy=Strategy.NAIVE, delta=1e-5, **SIZES)
    return replace(spec, carries_labels=carries)


def counted(plan: Plan, cohort: str) -> int:
    return sum(
        isinstance(charge.event, NoisyThreshold) and cohort in charge.cohorts
        for release in plan.releases()
        for charge in release.charges
    )


def test_hidden_thresholds_count_carried_records_in_one_of_the_worlds():
    carried = certified_plan(wishes(SelectionMode.HIDDEN, carries=True))
    fresh = certified_plan(wishes(SelectionMode.HIDDEN, carries=False))
    assert counted(carried.plan, "0") == 2
    assert counted(fresh.plan, "0") == 0
    # The same promise, with a little less for training.
    assert carried.epsilon <= carried.plan.spec.target.epsilon
    first, second = (one.plan.phases[0].training for one in (carried, fresh))
    assert first.noise_multiplier > second.noise_multiplier


def test_where_ids_are_visible_both_worlds_carry_the_same():
    carried = certified_plan(wishes(SelectionMode.VISIBLE, carries=True))
    assert counted(carried.plan, "0") == 0


@pytest.mark.parametrize(
    ("acquisition", "queries"), [(Acquisition.RANDOM, (800,)), (Acquisition.ENTROPY, ())]
)
def test_a_random_draw_after_secret_labels_is_refused(acquisition, queries):
    """It draws from who is left, and who is left is secret; what helps are queries by score."""
    spec = campaign(selection=SelectionMode.HIDDEN, acquisition=acquisition, delta=1e-5,
                    selection_epsilon=0.0, **{**SIZES, "queries": queries})  # fmt: skip
    with pytest.raises(ParameterError, match=r"is hidden.*schedule\.queries.*acquisition"):
        replace(spec, carries_labels=True)


def test_under_replace_one_labels_are_not_carried():
    target = PrivacyTarget(epsilon=8.0, delta=1e-5, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(ParameterError, match="without start_from"):
        replace(wishes(SelectionMode.VISIBLE, carries=True), target=target)
