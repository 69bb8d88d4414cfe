"""The settings of Schwethelm et al. (2025) at epsilon 8 and a delta of one over the labels.

Renyi plans are ours (`accountant: rdp`) or the published planner's, run again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pytest import approx
from scipy.optimize import brentq

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import Acquisition, CampaignSpec, Schedule, SelectionMode
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.cohort_budget import Budget
from dpal.planning.paper_plan import published_schedule
from tests.planning.specs import campaign
from tests.variants import quick_and_slow

GOLDEN = json.loads(
    (Path(__file__).parent.parent / "golden" / "published_plans.json").read_text(encoding="utf-8")
)
# Spec 1, section 5: pool, schedule, delta of one over the labels.
SETTINGS = {
    "cifar10": (50_000, Schedule(initial=10_000, queries=(10_000, 3000, 1000, 1000),
                                 batch_size=4096, epochs_per_phase=30), 4e-5),
    "bloodcell": (11_959, Schedule(initial=1024, queries=(1024, 300, 100, 52),
                                   batch_size=512, epochs_per_phase=21), 4e-4),
    "snli": (550_152, Schedule(initial=20_000, queries=(20_000, 6000, 2000, 2000),
                               batch_size=4096, epochs_per_phase=15), 2e-5),
}  # fmt: skip
NAMES = list(SETTINGS)


def wish(
    name: str, accountant: Accountant, *, random: bool, delta: float | None = None
) -> CampaignSpec:
    pool_size, schedule, paper_delta = SETTINGS[name]
    return campaign(
        pool_size=pool_size,
        delta=delta or paper_delta,
        accountant=accountant,
        selection=SelectionMode.PAPER,
        acquisition=Acquisition.RANDOM if random else Acquisition.ENTROPY,
        initial=schedule.initial,
        queries=schedule.queries,
        batch_size=schedule.batch_size,
        epochs=schedule.epochs_per_phase,
    )


def first_noise(name: str, accountant: Accountant) -> float:
    """The noise multiplier that all strategies start from."""
    spec = wish(name, accountant, random=True)
    return Budget(spec, spec.planning_epsilon).calibrate_noise()[0]


@pytest.mark.parametrize("name", ["cifar10", *(pytest.param(one, marks=pytest.mark.slow)
                                               for one in NAMES if one != "cifar10")])  # fmt: skip
def test_every_cohort_ends_just_below_eight(name):
    certified = certified_plan(wish(name, Accountant.PLD, random=True))
    for one in certified.cohorts:
        assert 7.95 <= one.spent.epsilon_pld <= 8.0
    assert 7.95 <= certified.epsilon <= 8.0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_cohort_ends_just_below_eight_with_noisy_scores(name):
    certified = certified_plan(wish(name, Accountant.PLD, random=False))
    for one in certified.cohorts:
        assert 7.95 <= one.spent.epsilon_pld <= 8.0
    assert certified.epsilon <= 8.0


# What loss distributions save of the noise of our own plan by Renyi bounds: 6.3, 7.2 and 5.8 %.
# Those bounds are Opacus' to 1e-6, on Poisson rates of B / N.
@pytest.mark.parametrize(
    ("name", "saved"), [("cifar10", 0.06), ("bloodcell", 0.07), ("snli", 0.055)]
)
def test_less_noise_than_by_renyi_bounds(name, saved):
    by_pld, by_rdp = (first_noise(name, one) for one in Accountant)
    assert 1 - saved - 0.01 < by_pld / by_rdp < 1 - saved


@pytest.mark.parametrize("name", quick_and_slow(["bloodcell"], NAMES))
def test_less_noise_than_published(name):
    """By 19, 14 and 14 %, and the published plans end above 8 by their own accountant."""
    found = published_schedule(wish(name, Accountant.RDP, random=False))
    assert found.epsilon_rdp > 8.08
    published = found.plan.phases[0].training.noise_multiplier
    assert first_noise(name, Accountant.PLD) < 0.87 * published


@pytest.mark.parametrize("name", quick_and_slow(["bloodcell"], NAMES))
def test_published_schedules_need_more_noise_by_renyi_bounds_than_by_loss_distributions(name):
    """Steps and rates as published, noise until no cohort ends above 8: 7.7, 9.0 and 7.1 % less."""
    plan = published_schedule(wish(name, Accountant.RDP, random=False)).plan

    def worst(factor: float, accountant: Accountant) -> float:
        scaled = [
            replace(
                phase,
                training=replace(
                    phase.training, noise_multiplier=factor * phase.training.noise_multiplier
                ),
            )
            for phase in plan.phases
        ]
        releases = list(Plan(plan.spec, tuple(scaled)).releases())
        return campaign_epsilon(releases, plan.spec.target, accountant=accountant)

    by_pld, by_rdp = (
        brentq(lambda factor, one=one: worst(factor, one) - 8, 0.8, 1.2, xtol=1e-4)
        for one in Accountant
    )
    assert by_rdp > 1.01
    assert by_pld < 0.94 * by_rdp


@pytest.mark.parametrize("setting", ["cifar10_d1e-5", "blood_d4e-4"])
def test_the_published_planner_is_reproduced(setting):
    golden = GOLDEN[setting]
    name = "cifar10" if setting.startswith("cifar10") else "bloodcell"
    found = published_schedule(wish(name, Accountant.RDP, random=False, delta=golden["delta"]))
    sigma = found.plan.phases[0].training.noise_multiplier
    assert sigma == approx(golden["plans"]["naive"]["sigma"][0], rel=1e-9)
