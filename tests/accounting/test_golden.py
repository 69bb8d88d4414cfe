"""The published plans, as three independent accountants saw them.

The numbers come from re-accounting the plans of the code that was published with
Schwethelm et al. (2025): Opacus' RDP and dp-accounting's PLD, zero-out and replace-one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest import approx

from dpal.accounting import oracle, rdp
from dpal.accounting.events import PhaseExposure
from dpal.privacy import Adjacency

GOLDEN = json.loads(
    (Path(__file__).parent.parent / "golden" / "published_plans.json").read_text(encoding="utf-8")
)
CASES = [
    (setting, mode, row["cohort"])
    for setting, values in GOLDEN.items()
    for mode, plan in values["plans"].items()
    for row in plan["cohorts"]
]


def history(plan: dict, cohort: int) -> list[PhaseExposure]:
    return [
        PhaseExposure(
            steps=plan["steps"][phase],
            sample_rate=(plan["q_new"] if phase == cohort else plan["q_old"])[phase],
            noise_multiplier=plan["sigma"][phase],
        )
        for phase in range(cohort, len(plan["steps"]))
    ]


@pytest.mark.parametrize(("setting", "mode", "cohort"), CASES)
def test_training_of_every_published_cohort(setting, mode, cohort):
    values = GOLDEN[setting]
    plan, delta = values["plans"][mode], values["delta"]
    golden, trained = plan["cohorts"][cohort], history(plan, cohort)
    assert rdp.epsilon_spent(trained, delta=delta) == approx(golden["rdp"], abs=1e-3)
    by_pld = oracle.epsilon_by_pld(trained, delta=delta, adjacency=Adjacency.ZERO_OUT)
    assert by_pld == approx(golden["pld"], abs=1e-2)
    replaced = oracle.epsilon_by_pld(trained, delta=delta, adjacency=Adjacency.REPLACE_ONE)
    assert replaced == approx(golden["pld_replace"], abs=1e-2)
    # Rényi bounds are never below the tight ones.
    assert rdp.epsilon_spent(trained, delta=delta) >= by_pld
    by_rdp = rdp.epsilon_spent(trained, delta=delta, adjacency=Adjacency.REPLACE_ONE)
    assert by_rdp >= replaced
