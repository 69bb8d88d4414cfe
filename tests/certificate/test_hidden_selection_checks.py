"""Certificates of hidden campaigns whose reserve is smaller than their charges say."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import scipy

from dpal.certificate.verify import verify_certificate
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import LabelCap, ThresholdStart
from dpal.planning.selection_steps import HiddenGate, starts_at_validation
from tests.certificate.certifying import asserted, certified, failures, plan_of, run
from tests.variants import quick_and_slow

WAYS: dict[str, dict[str, Any]] = {
    "sum": {"privacy__label_cap": "sum"},
    "query": {"privacy__label_cap": "query"},
    "sum and secret draw": {"privacy__label_cap": "sum", "privacy__secret_draw": True},
}


@pytest.mark.parametrize("way", quick_and_slow(["sum", "query"], WAYS))
def test_a_true_plan_passes(tmp_path, way):
    plan = plan_of("hidden", **WAYS[way])
    assert any(starts_at_validation(phase.selection) for phase in plan.phases)
    _, entries = run(tmp_path, plan)
    assert failures(verify_certificate(certified(entries, plan), ledger=entries)) == {}


def with_gates(plan: Plan, **changes: Any) -> Plan:
    """The plan with other numbers of all its gates; those of the threshold are called so."""
    threshold, phases = changes.pop("threshold", {}), []
    for phase in plan.phases:
        step = phase.selection
        if isinstance(step, HiddenGate):
            moved = {name: getattr(step, name) + value for name, value in changes.items()}
            step = replace(step, threshold=replace(step.threshold, **threshold), **moved)
        phases.append(replace(phase, selection=step))
    return replace(plan, phases=tuple(phases))


CHANGES: dict[str, dict[str, Any]] = {
    # Labels fewer in reserve: whether one more or less is kept, rounding decides.
    "limit": {"limit": 5},
    "cap": {"cap": 30, "limit": 30},
    "noise": {"confirming_share": -0.2},  # more on the count that accepts
    "chance": {"threshold": {"failure_probability": 1e-14}},
    "no chance": {"threshold": {"failure_probability": 0.0}},
}


@pytest.mark.parametrize(
    ("change", "way"),
    quick_and_slow(
        [*((change, "sum") for change in CHANGES), ("cap", "query")],
        product(CHANGES, WAYS),
    ),
)  # fmt: skip
def test_a_reserve_that_is_too_small_is_found(tmp_path, change, way):
    plan = with_gates(plan_of("hidden", **WAYS[way]), **CHANGES[change])
    _, entries = run(tmp_path, plan)
    found = failures(verify_certificate(asserted(entries, plan), ledger=entries))
    assert set(found) == {"plan"}


def as_plain(plan: Plan, *, reserve: int | None, says_so: bool) -> Plan:
    """The plan with gates of a plain search, whose reserve nothing confirms."""
    phases = []
    for phase in plan.phases:
        step = phase.selection
        if isinstance(step, HiddenGate):
            kept = reserve if reserve is not None else least_reserve(step)
            step = HiddenGate(
                threshold=step.threshold,
                comparisons=step.comparisons,
                aim=phase.cohort_size - kept,
            )
        phases.append(replace(phase, selection=step))
    start = ThresholdStart.PLAIN if says_so else plan.spec.threshold_start
    cap = LabelCap.QUERY if says_so else plan.spec.label_cap
    spec = replace(plan.spec, threshold_start=start, label_cap=cap)
    return Plan(spec, tuple(phases))


def least_reserve(step: HiddenGate) -> int:
    """So much that each of all comparisons fails as seldom as is charged."""
    chance = step.threshold.failure_probability / step.comparisons
    noise = step.threshold.noise_multiplier * math.sqrt(step.comparisons)
    return math.ceil(-float(scipy.special.ndtri(chance)) * noise) + 1


@pytest.mark.parametrize(
    ("reserve", "says_so", "sound"),
    [(None, True, True), (None, False, False), (10, True, False), (0, False, False)],
)
def test_a_plain_search_keeps_its_own_reserve_and_says_what_it_is(
    tmp_path, reserve, says_so, sound
):
    plan = as_plain(plan_of("hidden"), reserve=reserve, says_so=says_so)
    _, entries = run(tmp_path, plan)
    found = failures(verify_certificate(asserted(entries, plan), ledger=entries))
    assert set(found) == (set() if sound else {"plan"})
