"""Plans of improvements: noise that is charged, room for a start, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from dpal.accounting.cohort_spending import Accountant
from dpal.accounting.events import TRAINING, Charge, PhaseExposure, Release
from dpal.accounting.prior_spend import Declared, PriorSpend
from dpal.config.improvement import parse_public
from dpal.config.public_records import ChoiceConfig
from dpal.errors import ConfigError, ParameterError, PlanRejected
from dpal.labels import Task
from dpal.models.spec import ModelSpec
from dpal.planning.improvement_plan import (
    COMPONENTS,
    SUPPORT,
    ImprovementSpec,
    certify_improvement,
    widest_start,
)
from dpal.planning.public_selection import (
    ChoiceSpec,
    FineTuning,
    PublicSelectionMethod,
    Uncertainty,
    Voters,
    guidance_for,
)
from dpal.privacy import Adjacency, PrivacyTarget
from tests.conftest import having, nothing_released

TARGET = PrivacyTarget(epsilon=3.2, delta=1e-5)


def before(noise: float = 1.5) -> PriorSpend:
    event = PhaseExposure(steps=500, sample_rate=0.02, noise_multiplier=noise)
    charge = Charge(cohorts=("0",), event=event)
    training = Release(name="phase-0/training", kind=TRAINING, phase=0, charges=(charge,))
    return PriorSpend(campaign="start", releases=(training,))


def guidance(target: PrivacyTarget = TARGET, **changes):
    asked = {"pca_epsilon": 0.3, "support_epsilon": 0.5, "voters": Voters.THRESHOLD}
    return guidance_for(**{**asked, **changes}, max_norm=None, target=target)


def spec(**changes) -> ImprovementSpec:
    choice = ChoiceSpec(
        method=PublicSelectionMethod.NEAR_PRIVATE,
        labels=100,
        candidates=200,
        components=5,
        clusters=1,
        each=1,
        uncertainty=Uncertainty.ENTROPY,
    )
    tuning = FineTuning(
        optimizer="adam", learning_rate=1e-3, epochs=1, batch_size=8, weight_decay=0.0, shift=0
    )
    values = {
        "name": "better",
        "target": TARGET,
        "accountant": Accountant.PLD,
        "before": before(),
        "choice": choice,
        "guidance": guidance(),
        "fine_tuning": tuning,
        "model": ModelSpec(name="logistic", input_shape=(6,), classes=3),
        "public": "0" * 64,
        "start_model": None,
    }
    return ImprovementSpec(**{**values, **changes})


@pytest.mark.parametrize(("epsilon", "noise"), [(0.3, 11.2), (0.5, 7.03)])
def test_the_noise_of_the_components_is_the_printed_one(epsilon, noise):
    # Privacy notes 5.6, analytic Gaussian at delta 1e-5.
    found = guidance(pca_epsilon=epsilon).components.noise_multiplier
    assert found == pytest.approx(noise, rel=5e-3)
    accountant = PLDAccountant()
    accountant.compose(dp_event.GaussianDpEvent(found))
    assert accountant.get_epsilon(1e-5) <= epsilon + 1e-3


def test_votes_are_charged_for_all_counts_that_a_record_can_move():
    one = guidance().support
    assert (one.epsilon, one.l0_sensitivity) == (0.5, 1)
    for two in (
        guidance(voters=Voters.TOP_K),
        guidance(replace(TARGET, adjacency=Adjacency.REPLACE_ONE)),
    ):
        assert (two.support.epsilon, two.support.l0_sensitivity) == (0.25, 2)


def test_two_releases_are_charged_to_everybody():
    plan = certify_improvement(spec()).plan
    assert [one.name for one in plan.releases()] == [COMPONENTS, SUPPORT]
    assert all(
        charge.cohorts == ("0", "never_selected")
        for one in plan.releases()
        for charge in one.charges
    )
    free = certify_improvement(spec(guidance=None))
    assert list(free.plan.releases()) == []
    assert free.epsilon == free.start_epsilon


def test_what_costs_more_than_promised_is_refused_with_the_numbers():
    tight = replace(TARGET, epsilon=1.0)
    with pytest.raises(PlanRejected, match=r"cost epsilon 1\.\d+ at delta 1e-05"):
        certify_improvement(spec(target=tight))
    start = certify_improvement(spec(guidance=None)).start_epsilon
    close = replace(TARGET, epsilon=start + 0.1)
    with pytest.raises(PlanRejected, match=r"cost epsilon .*lower near_private"):
        certify_improvement(spec(target=close))
    declared = PriorSpend(declared=Declared(epsilon=3.0, delta=1e-5))
    with pytest.raises(PlanRejected, match="the delta"):
        certify_improvement(spec(before=declared))
    with pytest.raises(PlanRejected, check=nothing_released):
        certify_improvement(spec(before=PriorSpend(declared=Declared(epsilon=9.0, delta=1e-6))))


def test_a_start_takes_what_the_guidance_leaves():
    tried = []

    def before_for(epsilon: float) -> PriorSpend:
        tried.append(epsilon)
        return before(6.0 / epsilon)  # cheaper for smaller epsilons, as a planner's is

    epsilon, found = widest_start(spec(), before_for)
    total = certify_improvement(spec(before=found)).epsilon
    assert 3.2 * 0.98 < total <= 3.2
    assert epsilon in tried
    assert len(tried) <= 8
    with pytest.raises(PlanRejected, match="start fits"):
        widest_start(spec(guidance=guidance(support_epsilon=4.0)), before_for)
    assert widest_start(spec(guidance=None), before_for)[0] == 3.2


def test_embeddings_must_have_the_components():
    spec().require_width(5)
    with pytest.raises(ParameterError, match=r"5 components .*4 wide"):
        spec().require_width(4)
    with pytest.raises(ParameterError, match="be seen"):
        spec().require_width(4000)
    spec(
        guidance=None, choice=replace(spec().choice, method=PublicSelectionMethod.RANDOM)
    ).require_width(1)


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        (PublicSelectionMethod.UNCERTAIN_MARGIN, "choice.method"),
        (PublicSelectionMethod.DIVERSE_PUBLIC, "choice.uncertainty"),
        (PublicSelectionMethod.NEAR_PRIVATE, "choice.uncertainty"),
        (PublicSelectionMethod.UNCERTAIN_ENTROPY, None),
        (PublicSelectionMethod.RANDOM, None),
    ],
)
def test_several_labels_of_a_record_have_no_margin(method, setting):
    choice = replace(
        spec().choice, method=method, uncertainty=Uncertainty.MARGIN, clusters=10, each=10
    )
    spec(choice=choice).require_rivals()
    several = spec(choice=choice, model=replace(spec().model, task=Task.MULTI_LABEL))
    if setting is None:
        several.require_rivals()
        return
    with pytest.raises(ParameterError, check=nothing_released) as refused:
        several.require_rivals()
    assert refused.value.parameter == setting


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (1000, 100, 10)),
        ({"labels": 7000}, (7000, 700, 10)),
        ({"labels": 700, "clusters": 35}, (700, 35, 20)),
        ({"clusters": 100, "each": 20}, (2000, 100, 20)),
        ({"labels": 7}, (7, 7, 1)),
        ({"each": 25}, (1000, 40, 25)),
        ({"clusters": 30}, (300, 30, 10)),
    ],
)
def test_labels_clusters_and_each_follow_from_each_other(given, expected):
    found = ChoiceConfig(**given).to_spec(public_records=20_000)
    assert (found.labels, found.clusters, found.each) == expected
    assert found.candidates == 2 * found.labels


def test_numbers_that_do_not_fit_are_one_sentence():
    with pytest.raises(ParameterError, match=r"10 x choice.each 7 is 70 and choice.labels is 60"):
        ChoiceConfig(labels=60, clusters=10, each=7).to_spec(public_records=500)
    with pytest.raises(ParameterError, match=r"choice.clusters 7"):
        ChoiceConfig(labels=60, clusters=7).to_spec(public_records=500)
    with pytest.raises(ParameterError, match="asks for 600 of 500 public records"):
        ChoiceConfig(labels=600).to_spec(public_records=500)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"start": {"campaign": "a", "model": "m.safetensors"}}, "two models"),
        ({"start": {"certificate": "c.json"}}, "to start.model"),
        ({"start": {"model": "m.safetensors"}}, "be guessed"),
        ({"start": {"campaign": "a", "rotations": {}}}, "leave one out"),
        ({"start": {"campaign": "better"}}, "is the start's own; choose another"),
        ({"public": {"irrelevant": ["x"]}}, "go together"),
        ({"labeler": {"kind": "form", "trusted_page": True}}, "at most 20 records"),
        ({"fine_tuning": {"shift": 1}, "data": {"extractor": "scattering"}}, "use one of the two"),
    ],
)
def test_wishes_that_contradict_each_other(values, expected):
    with pytest.raises(ConfigError, match=expected):
        parse_public({"kind": "public", "name": "better", **values})


@pytest.mark.parametrize(
    ("values", "setting", "meant"),
    [
        ({"choice": {"method": "diverse"}}, "choice.method", "diverse_public"),
        ({"chioce": {}}, "chioce", "choice"),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_what_was_meant(values, setting, meant):
    with pytest.raises(ConfigError, check=having(setting=setting, meant=meant)):
        parse_public({"kind": "public", "name": "better", **values})


def test_a_start_is_trained_and_not_fitted():
    with pytest.raises(ConfigError):
        parse_public({"kind": "public", "name": "b", "training": {"method": "prototypes"}})


def test_more_room_never_costs_the_promise():
    assert math.isfinite(certify_improvement(spec()).epsilon_oracle)
    assert certify_improvement(spec()).epsilon_oracle == pytest.approx(
        certify_improvement(spec()).epsilon, abs=0.01
    )
