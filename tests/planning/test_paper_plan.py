"""The `paper` profile plans what the published code planned, and says what it really spends."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from pytest import approx

from dpal.errors import ParameterError
from dpal.planning.campaign_spec import CampaignSpec, Strategy
from dpal.planning.certify_campaign import PLANNERS
from dpal.planning.paper_plan import PublishedSchedule, published_schedule
from tests.planning.specs import campaign

GOLDEN = json.loads(
    (Path(__file__).parent.parent / "golden" / "published_plans.json").read_text(encoding="utf-8")
)
# The published planner has two names for this mode; both solve for the same.
PUBLISHED = {"cifar10_d1e-5": "step_ampl_prob", "blood_d4e-4": "step_ampl_prob_noise"}
POOLS = {"cifar10_d1e-5": 50_000, "blood_d4e-4": 11_959}


def published_setting(name: str) -> CampaignSpec:
    values = GOLDEN[name]
    return campaign(
        pool_size=POOLS[name],
        epsilon=values["epsilon"],
        delta=values["delta"],
        selection_epsilon=values["selection_epsilon"],
        initial=values["initial"],
        queries=tuple(values["queries"]),
        batch_size=values["batch_size"],
        epochs=values["epochs"],
    )


@pytest.fixture(scope="module")
def blood() -> PublishedSchedule:
    return published_schedule(published_setting("blood_d4e-4"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_plans_what_the_published_code_planned(name):
    golden = GOLDEN[name]["plans"][PUBLISHED[name]]
    schedule = published_schedule(published_setting(name))
    trained = [phase.training for phase in schedule.plan.phases]
    assert [phase.steps for phase in trained] == golden["steps"]
    assert [phase.noise_multiplier for phase in trained] == approx(golden["sigma"], rel=1e-9)
    assert [phase.sample_rate_new for phase in trained] == approx(golden["q_new"], rel=1e-6)
    assert [phase.sample_rate_old for phase in trained[1:]] == approx(golden["q_old"][1:], rel=1e-6)
    share = GOLDEN[name]["selection_epsilon"] / len(GOLDEN[name]["queries"])
    for spent, cohort in zip(schedule.cohorts, golden["cohorts"], strict=False):
        charged = cohort["rdp"] + cohort["cohort"] * share
        assert spent.epsilon_rdp == approx(charged, abs=1e-3)


def test_says_that_it_breaks_its_promise(blood):
    assert blood.epsilon_rdp == approx(8.199, abs=1e-3)
    assert not blood.keeps_its_promise
    summary = blood.summary()
    assert summary["certified"] is False
    assert summary["worst_epsilon"] > summary["target_epsilon"]
    json.dumps(summary, allow_nan=False)


def test_tight_accounting_finds_less_than_its_own(blood):
    assert blood.epsilon_pld < blood.epsilon_rdp
    assert blood.epsilon_as_run == blood.epsilon_pld  # at clip 1 the code runs what it planned


def test_with_another_clip_the_published_code_runs_less_noise():
    spec = published_setting("blood_d4e-4")
    clipped = replace(spec, optimizer=replace(spec.optimizer, max_grad_norm=3.0))
    assert published_schedule(clipped).epsilon_as_run > 18
    # Nearly no noise at all: nothing can be accounted for, and JSON still holds it.
    blatant = published_schedule(
        replace(spec, optimizer=replace(spec.optimizer, max_grad_norm=1e6))
    )
    assert math.isinf(blatant.epsilon_as_run)
    assert blatant.summary()["epsilon_as_run"] is None


def test_sizes_the_published_code_fails_on_are_refused_with_sizes_that_work():
    spec = campaign(initial=300, queries=(100,), batch_size=256)
    with pytest.raises(ParameterError, match=r"fewer than 512 .*batch_size to 200 to see"):
        published_schedule(spec)
    published_schedule(campaign(initial=300, queries=(100,), batch_size=200))


def test_no_setting_asks_for_it(blood):
    planners: list[object] = list(PLANNERS.values())
    assert published_schedule not in planners
    assert "published" not in [strategy.value for strategy in Strategy]
