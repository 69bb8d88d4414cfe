"""Certificates of hidden campaigns whose reserve is smaller than their charges say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpal.certificate.verify import verify_certificate
from dpal.planning.campaign_plan import Plan
from dpal.planning.selection_steps import HiddenGate, starts_at_validation
from tests.certificate.certifying import asserted, certified, failures, plan_of, run

WAYS = [
    {"privacy__label_cap": "sum"},
    {"privacy__label_cap": "query"},
    {"privacy__label_cap": "sum", "privacy__secret_draw": True},
]


@pytest.mark.parametrize("settings", WAYS, ids=["sum", "query", "sum and secret draw"])
def test_a_true_plan_passes(tmp_path, settings):
    plan = plan_of("hidden", **settings)
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


@pytest.mark.parametrize("settings", WAYS, ids=["sum", "query", "sum and secret draw"])
@pytest.mark.parametrize(
    "changes",
    [
        {"limit": 5},  # labels fewer in reserve: whether one more or less is kept, rounding decides
        {"cap": 30, "limit": 30},
        {"confirming_share": -0.2},  # more noise on the count that accepts
        {"threshold": {"failure_probability": 1e-14}},
        {"threshold": {"failure_probability": 0.0}},
    ],
    ids=["limit", "cap", "noise", "chance", "no chance"],
)
def test_a_reserve_that_is_too_small_is_found(tmp_path, settings, changes):
    plan = with_gates(plan_of("hidden", **settings), **changes)
    _, entries = run(tmp_path, plan)
    found = failures(verify_certificate(asserted(entries, plan), ledger=entries))
    assert set(found) == {"plan"}
