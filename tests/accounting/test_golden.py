"""The published plans, as independent accountants saw them.

The numbers come from re-accounting the plans of the code that was published with
Schwethelm et al. (2025): Opacus' RDP and dp-accounting's PLD, zero-out and replace-one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest import approx

from dpal.accounting import pld, rdp, second_opinion
from dpal.accounting.events import PhaseExposure
from dpal.accounting.single_step_curves import Direction
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


def by_pld(trained: list[PhaseExposure], *, delta: float, adjacency: Adjacency) -> float:
    """By our engine, both directions."""
    grid = pld.fit_grid([trained], delta=delta, adjacency=adjacency, accuracy=pld.CERTIFY)
    return max(
        pld.compose(trained, grid=grid, adjacency=adjacency, direction=direction).epsilon(delta)
        for direction in Direction
    )


@pytest.mark.parametrize(("setting", "mode", "cohort"), CASES)
def test_training_of_every_published_cohort(setting, mode, cohort):
    values = GOLDEN[setting]
    plan, delta = values["plans"][mode], values["delta"]
    golden, trained = plan["cohorts"][cohort], history(plan, cohort)
    for adjacency, name in ((Adjacency.ZERO_OUT, "pld"), (Adjacency.REPLACE_ONE, "pld_replace")):
        found = by_pld(trained, delta=delta, adjacency=adjacency)
        assert found == approx(golden[name], abs=1e-2)
        # Rényi bounds are never below the tight ones.
        assert rdp.epsilon_spent(trained, delta=delta, adjacency=adjacency) >= found
    assert rdp.epsilon_spent(trained, delta=delta) == approx(golden["rdp"], abs=1e-3)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("setting", GOLDEN)
def test_the_second_opinion_on_a_published_cohort(setting, adjacency):
    values = GOLDEN[setting]
    plan = values["plans"]["step_ampl_prob_noise"]
    found = second_opinion.epsilon_by_pld(
        history(plan, 1), delta=values["delta"], adjacency=adjacency
    )
    name = "pld" if adjacency is Adjacency.ZERO_OUT else "pld_replace"
    assert found == approx(plan["cohorts"][1][name], abs=1e-2)


def test_every_published_cohort_is_among_them():
    assert len(CASES) == 7 * 5  # the published planner fails on one of eight settings
