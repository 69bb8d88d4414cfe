"""Plans of heads: one release of each cohort, certified like any other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from dpal.accounting.events import NoisyStatistics
from dpal.canonical import digest, plain
from dpal.errors import ConfigError, ParameterError, PlanRejected
from dpal.planning.campaign_plan import TrainingPhase
from dpal.planning.campaign_spec import Acquisition, CampaignSpec, SelectionMode, Strategy
from dpal.planning.certify_campaign import certified_plan, certify_plan
from dpal.planning.explain_campaign import explain_campaign
from dpal.planning.linear_head_spec import HeadKind, LinearHead
from dpal.planning.plan_doubts import plan_doubts
from dpal.privacy import Accountant, Adjacency
from tests.conftest import small_spec
from tests.planning.specs import campaign
from tests.variants import quick_and_slow

HEAD = LinearHead(kind=HeadKind.LEAST_SQUARES, components=5)
WAYS: dict[str, dict[str, Any]] = {
    "random": {"acquisition": Acquisition.RANDOM},
    "secret draw": {
        "acquisition": Acquisition.RANDOM, "selection": SelectionMode.HIDDEN, "secret_draw": True,
    },
    "visible": {"selection": SelectionMode.VISIBLE},
    "paper": {"selection": SelectionMode.PAPER},
    "hidden": {"selection": SelectionMode.HIDDEN, "queries": (600, 600)},
    "rdp": {"acquisition": Acquisition.RANDOM, "accountant": Accountant.RDP},
    "replaced": {"acquisition": Acquisition.RANDOM, "adjacency": Adjacency.REPLACE_ONE},
    "hidden, replaced": {
        "selection": SelectionMode.HIDDEN, "adjacency": Adjacency.REPLACE_ONE,
        "strategy": Strategy.NAIVE, "queries": (600, 600),
    },
}  # fmt: skip


def fitted(way: str, **changes: Any) -> CampaignSpec:
    return replace(campaign(**{"epsilon": 4.0, **WAYS[way], **changes}), head=HEAD)


@pytest.mark.parametrize("way", quick_and_slow([way for way in WAYS if way != "secret draw"], WAYS))
def test_every_cohort_pays_once_and_the_promise_is_kept(way):
    certified = certified_plan(fitted(way))
    plan = certified.plan
    assert certified.epsilon <= 4 and certified.epsilon_oracle <= 4 + 5e-3
    assert certified.epsilon > 3.9
    for phase in plan.phases:
        assert phase.training.statistics and phase.steps == 1 and phase.catch_up is None
        release = plan.release(phase.training_release)
        assert release is not None
        event = NoisyStatistics(noise_multiplier=phase.training.noise_multiplier)
        assert {charge.event for charge in release.charges} == {event}
        told = {cohort for charge in release.charges for cohort in charge.cohorts}
        if way == "hidden, replaced":  # whoever entered before may enter here in the other world
            assert told == {str(index) for index in range(1, phase.index + 1)} | (
                {"0"} if not phase.index else set()
            )
        else:
            assert told == {str(phase.index)}


def test_the_noise_is_that_of_one_gaussian_release_and_no_smaller():
    """By dp-accounting: the planned noise keeps epsilon, and a thousandth less does not."""
    certified = certified_plan(fitted("random"))
    target = certified.plan.spec.target
    (noise,) = {phase.training.noise_multiplier for phase in certified.plan.phases}

    def epsilon(sigma: float) -> float:
        told = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
        return float(told.get_epsilon_for_delta(target.delta))

    assert epsilon(noise) <= target.epsilon * (1 + 1e-4)
    assert epsilon(0.999 * noise) > target.epsilon


@pytest.mark.slow
def test_phases_and_schedules_that_decide_steps_decide_nothing():
    one = certified_plan(fitted("random", queries=())).plan
    three = certified_plan(fitted("random", batch_size=17, epochs=99)).plan
    assert {phase.training.noise_multiplier for phase in three.phases} == {
        one.phases[0].training.noise_multiplier
    }
    noises = {
        certified_plan(fitted("visible", strategy=strategy))
        .plan.phases[1]
        .training.noise_multiplier
        for strategy in Strategy
    }
    assert len(noises) == 1


@pytest.mark.parametrize("way", ["visible", "paper"])
def test_every_cohort_gets_as_little_noise_as_its_selections_leave(way):
    """One noise for all would leave budget unused; each ends near the promise instead."""
    certified = certified_plan(fitted(way))
    noises = [phase.training.noise_multiplier for phase in certified.plan.phases]
    assert max(noises) > 1.01 * min(noises)
    spent = [cohort.spent.epsilon_pld for cohort in certified.cohorts]
    assert min(spent) > 0.85 * 4, spent


def test_less_noise_than_planned_is_no_plan():
    plan = certified_plan(fitted("random")).plan
    last = plan.phases[-1]
    part = replace(last.training, noise_multiplier=0.97 * last.training.noise_multiplier)
    with pytest.raises(PlanRejected):
        certify_plan(replace(plan, phases=(*plan.phases[:-1], replace(last, training=part))))


@pytest.mark.parametrize(
    "changes", [{"steps": 2}, {"sample_rate_old": 0.1}, {"sample_rate_new": 0.5}]
)
def test_a_fit_is_one_step_on_all_new_records(changes):
    part = certified_plan(fitted("random")).plan.phases[0].training
    with pytest.raises(ParameterError):
        replace(part, **changes)
    assert isinstance(part, TrainingPhase)


def test_plans_without_a_head_are_written_as_before():
    told = plain(certified_plan(campaign(acquisition=Acquisition.RANDOM)).plan)
    assert "head" not in told["spec"]
    assert not any("statistics" in phase["training"] for phase in told["phases"])
    spec = fitted("random")
    assert plain(spec)["head"] == {
        "kind": "least_squares", "components": 5, "max_feature_norm": None,
    }  # fmt: skip
    assert digest(spec) != digest(replace(spec, head=replace(HEAD, components=6)))


@pytest.mark.parametrize("kind", HeadKind)
def test_the_explanation_says_what_is_released(kind):
    spec = replace(fitted("random"), head=replace(HEAD, kind=kind))
    certified = certified_plan(spec)
    told = {one.topic: one.numbers for one in explain_campaign(certified)}
    released = next(numbers for numbers in told.values() if "sensitivity" in numbers)
    assert released["method"] == kind
    assert released["features"] == 5
    moments = kind is HeadKind.LEAST_SQUARES
    assert released["numbers"] == 6 * 3 + (21 if moments else 0)
    assert released["sensitivity"] == pytest.approx(2**0.5 if moments else 1.0)
    assert not [numbers for numbers in told.values() if "steps" in numbers]
    assert not list(plan_doubts(certified.plan, weights=10**9))


REFUSED: dict[str, dict[str, Any]] = {
    "a net": {"model": {"name": "mlp", "hidden": [8]}},
    "a convolutional net": {"model": {"name": "tutorial_cnn"}},
    "a search": {"search": {"trials": [{"learning_rate": 2.0}]}, "acquisition": "random"},
    "self-training": {"self_training": {"epochs": 2}, "acquisition": "random"},
    "a committee": {"acquisition": "committee"},
    "views": {"training__augmentation": {"multiplicity": 2, "flip": True}},
    "an average": {"training__averaging": {"kind": "tail"}},
    "another clipping": {"training__clipping": {"kind": "per_layer"}},
    "no direction": {"training__components": 0},
    "no length": {"training__max_feature_norm": 0},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_steps_can_do_is_refused(name):
    with pytest.raises((ConfigError, ParameterError)):
        small_spec(training__method="least_squares", **REFUSED[name])
    small_spec(training__method="least_squares", acquisition="random")


@pytest.mark.parametrize("setting", [{"components": 7}, {"max_feature_norm": 2.0}])
def test_what_only_heads_read_is_refused_beside_steps(setting):
    given = {f"training__{name}": value for name, value in setting.items()}
    with pytest.raises(ConfigError):
        small_spec(**given)
    assert small_spec(training__method="prototypes", **given).head is not None
