"""Plans whose chance cohorts are drawn by secret coins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.canonical import plain
from dpal.config.campaign import parse_config
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import CertifiedPlan
from dpal.planning.campaign_spec import Acquisition, CampaignSpec, SelectionMode, Strategy
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.explain_campaign import explain_campaign
from dpal.planning.selection_steps import HiddenGate, SecretRandomDraw
from dpal.privacy import Accountant, Adjacency
from tests.conftest import small_values
from tests.planning.specs import campaign

SMALL = {"initial": 400, "queries": (300, 300), "batch_size": 128, "epochs": 2, "epsilon": 6.0}


def hidden(*, secret: bool = True, **changes: Any) -> CampaignSpec:
    """A hidden campaign, on 10,000 records unless said."""
    settings = {"pool_size": 10_000, "delta": 1e-5, **SMALL, **changes}
    return campaign(selection=SelectionMode.HIDDEN, secret_draw=secret, **settings)


def noise(certified: CertifiedPlan) -> float:
    return certified.plan.phases[0].training.noise_multiplier


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("acquisition", [Acquisition.RANDOM, Acquisition.MARGIN])
def test_it_takes_less_noise_for_the_same_promise(strategy, acquisition):
    spec = hidden(strategy=strategy, acquisition=acquisition)
    secret, known = certified_plan(spec), certified_plan(replace(spec, secret_draw=False))
    assert noise(secret) < (0.8 if acquisition.is_random else 0.99) * noise(known)
    assert max(secret.epsilon_pld, secret.epsilon_oracle) <= 6.0 + 5e-3
    assert secret.epsilon_pld <= 6.0
    if strategy is not Strategy.NAIVE:
        assert secret.epsilon_pld > 5.9, "what was promised is used"
    known_draws = [
        release for release in secret.plan.releases()
        if not any(charge.event.entry_chance for charge in release.charges)
    ]  # fmt: skip
    assert campaign_epsilon(known_draws, spec.target) > 6.0, "the secret is what keeps it"


def test_noise_of_the_chance_cohort_of_mnist():
    """5,000 of 60,000 labels, batch 1,000, 350 steps; 2.553 and 5.773 where the draw is known."""
    for epsilon, most in [(8.0, 1.95), (3.0, 3.2)]:
        spec = hidden(
            pool_size=60_000, delta=1 / 600_000, initial=5000, queries=(), batch_size=1000,
            epochs=70, epsilon=epsilon, acquisition=Acquisition.RANDOM, strategy=Strategy.NAIVE,
        )  # fmt: skip
        certified = certified_plan(spec)
        assert noise(certified) <= most
        assert certified.epsilon_oracle == pytest.approx(certified.epsilon_pld, abs=5e-3)
        assert certified.plan.phases[0].steps == 350
        assert 5000 < certified.plan.phases[0].most_labels < 5500


@pytest.mark.parametrize("labels", [100, 500])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_seldom_draws_at_a_small_epsilon_are_certified_by_both(labels, epsilon):
    """Where little of the pool is drawn, dp-accounting's curves are read far above epsilon."""
    spec = hidden(
        pool_size=16_000, delta=6.25e-6, initial=labels, queries=(), batch_size=labels // 2,
        epochs=30, epsilon=epsilon, acquisition=Acquisition.RANDOM, strategy=Strategy.NAIVE,
    )  # fmt: skip
    certified = certified_plan(spec)
    assert 0.97 * epsilon < certified.epsilon_pld <= epsilon
    assert certified.epsilon_oracle <= epsilon + 5e-3


def test_chance_cohorts_toss_coins_and_gates_stay_gates():
    steps = [phase.selection for phase in certified_plan(hidden()).plan.phases]
    assert [type(step) for step in steps] == [SecretRandomDraw, HiddenGate, HiddenGate]
    steps = [
        phase.selection
        for phase in certified_plan(hidden(acquisition=Acquisition.RANDOM)).plan.phases
    ]
    chances = [step.draw.chance for step in steps if isinstance(step, SecretRandomDraw)]
    assert chances == [400 / 10_000, 300 / 9_600, 300 / 9_300]


def test_what_is_done_follows_the_planned_number():
    secret, known = certified_plan(hidden()), certified_plan(hidden(secret=False))
    first, other = secret.plan.phases[0], known.plan.phases[0]
    assert (first.cohort_size, first.training.sample_rate_new, first.training.steps) == (
        other.cohort_size, other.training.sample_rate_new, other.training.steps
    )  # fmt: skip
    assert first.training.expected_batch_size == other.training.expected_batch_size
    record = secret.summary()["phases"][0]
    assert record["cohort_size"] == 400 < record["most_labels"] == first.most_labels
    assert known.summary()["phases"][0]["most_labels"] == 400


def test_a_plan_without_it_has_the_digest_that_it_had():
    assert "secret_draw" not in plain(hidden(secret=False))
    assert plain(hidden())["secret_draw"] is True


REPLACING = {"adjacency": Adjacency.REPLACE_ONE, "strategy": Strategy.NAIVE}


@pytest.mark.parametrize(
    "changes",
    [
        {"selection": SelectionMode.VISIBLE, "selection_epsilon": 1.0},
        {"accountant": Accountant.RDP},
        {"dataset": "clinic"},
        REPLACING,
    ],
)
def test_where_it_would_save_nothing_it_is_refused(changes):
    spec, changes = hidden(secret=False), dict(changes)
    if adjacency := changes.pop("adjacency", None):
        changes["target"] = replace(spec.target, adjacency=adjacency)
    with pytest.raises(ParameterError):
        replace(spec, secret_draw=True, **changes)
    assert replace(spec, **changes).why_no_secret_draw
    assert spec.why_no_secret_draw is None
    assert replace(spec, secret_draw=True).varied(**changes).secret_draw is False


def test_under_replace_one_random_cohorts_may_be_secret():
    spec = hidden(acquisition=Acquisition.RANDOM, strategy=Strategy.NAIVE)
    other = replace(spec, target=replace(spec.target, adjacency=Adjacency.REPLACE_ONE))
    secret, known = certified_plan(other), certified_plan(replace(other, secret_draw=False))
    assert noise(secret) < noise(known)
    assert secret.epsilon_pld <= 6.0


@pytest.mark.parametrize(
    "changes",
    [
        {"initial": 20},
        {"initial": 400, "queries": (9600,), "acquisition": Acquisition.RANDOM},
        {"initial": 9990, "queries": (), "acquisition": Acquisition.RANDOM},
    ],
)
def test_draws_of_hardly_anybody_or_of_all_are_refused(changes):
    """Nor those that a digest of them would tell: 10 who are left out are 115 bits."""
    with pytest.raises(ParameterError):
        certified_plan(hidden(**changes))
    assert certified_plan(hidden(secret=False, **changes))


def test_the_plan_says_what_the_secret_saves():
    for secret, key in [(True, "noise_if_draw_is_known"), (False, "noise_if_draw_is_secret")]:
        certified = certified_plan(hidden(secret=secret))
        remarks = {remark.topic: remark for remark in explain_campaign(certified)}
        other = certified_plan(hidden(secret=not secret))
        told = remarks["What selection costs"].numbers[key]
        assert told == pytest.approx(noise(other), rel=0.02)
    labels = remarks["Labels"].numbers
    assert labels["most_labels"] == labels["labels"]


def test_the_setting_reaches_the_plan():
    config = parse_config(small_values(privacy={"selection": "hidden", "secret_draw": True}))
    spec = config.to_spec(pool_size=600, input_shape=(8,), classes=3)
    assert spec.secret_draw
