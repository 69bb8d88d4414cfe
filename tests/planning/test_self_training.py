"""Plans in whose last phase the records train that nobody labeled."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution as theirs
from dp_accounting.privacy_accountant import NeighboringRelation

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.canonical import plain
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import CertifiedPlan, Plan
from dpal.planning.campaign_spec import (
    Acquisition,
    CampaignSpec,
    SelectionMode,
    SelfTraining,
    Strategy,
)
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.explain_campaign import explain_campaign
from dpal.planning.selection_steps import SecretRandomDraw
from dpal.planning.self_training import unlabeled_phase
from dpal.privacy import Accountant, Adjacency
from dpal.reports.plan_and_phase_tables import above_the_promise
from flows.cli.plan_campaign import certified_view
from tests.planning.specs import campaign
from tests.variants import quick_and_slow

SMALL = {"initial": 400, "queries": (300, 300), "batch_size": 128, "epochs": 2, "epsilon": 6.0}
RANDOM = Acquisition.RANDOM
MODES = {
    "secret draws": (SelectionMode.HIDDEN, True, RANDOM),
    "open draws": (SelectionMode.HIDDEN, False, RANDOM),
    "secret draw and gates": (SelectionMode.HIDDEN, True, Acquisition.MARGIN),
    "gates": (SelectionMode.HIDDEN, False, Acquisition.MARGIN),
    "answers": (SelectionMode.VISIBLE, False, Acquisition.MARGIN),
    "noisy scores": (SelectionMode.PAPER, False, Acquisition.MARGIN),
}
NAIVE, STEPS = Strategy.NAIVE, Strategy.STEP_AMPLIFICATION
QUICK = [
    ("open draws", STEPS),
    ("answers", NAIVE),
    ("noisy scores", NAIVE),
]


def spec(
    selection: SelectionMode = SelectionMode.HIDDEN,
    secret: bool = False,
    acquisition: Acquisition = RANDOM,
    **changes: Any,
) -> CampaignSpec:
    """A campaign on 10,000 records, all of which train."""
    settings = {"pool_size": 10_000, "delta": 1e-5, **SMALL, **changes}
    return campaign(
        selection=selection,
        secret_draw=secret,
        acquisition=acquisition,
        **{"self_training": SelfTraining(epochs=3), **settings},
    )


planned = cache(certified_plan)  # several tests look at the same plan


def quieter(plan: Plan, share: float) -> Plan:
    """The same with less noise in its last phase."""
    last = plan.phases[-1]
    noise = share * last.training.noise_multiplier
    training = replace(last.training, noise_multiplier=noise)
    return replace(plan, phases=(*plan.phases[:-1], replace(last, training=training)))


def spent(certified: CertifiedPlan) -> float:
    plan = certified.plan
    return campaign_epsilon(list(plan.releases()), plan.spec.target)


@pytest.mark.parametrize(("way", "strategy"), quick_and_slow(QUICK, product(MODES, [NAIVE, STEPS])))
def test_all_that_is_promised_is_used_and_no_more(way, strategy):
    certified = planned(spec(*MODES[way], strategy=strategy))
    assert 0.98 * 6.0 < certified.epsilon_pld <= 6.0
    assert certified.epsilon_oracle <= 6.0 + 5e-3
    last = certified.plan.phases[-1]
    assert last.is_self_training and last.most_labels == 0
    assert last.cohort_size == 9_000 and certified.plan.cohort_size("never_selected") == 0
    assert last.training.sample_rate_old == 0, "labeled records do not pay for it"
    less = quieter(certified.plan, 0.9)
    assert campaign_epsilon(list(less.releases()), less.spec.target) > 6.0, "the unlabeled count"


@pytest.mark.slow
def test_without_secrets_it_costs_the_labeled_nothing():
    """Disjoint records, whose cohorts everybody knows: each pays for its own training."""
    alone = planned(spec(self_training=None, strategy=Strategy.NAIVE))
    both = planned(spec(strategy=Strategy.NAIVE))
    assert both.plan.phases[:-1] == alone.plan.phases
    training = both.plan.phases[-1].training
    step = theirs.from_gaussian_mechanism(
        training.noise_multiplier,
        sampling_prob=training.sample_rate_new,
        neighboring_relation=NeighboringRelation.REPLACE_SPECIAL,
    )
    unlabeled = step.self_compose(training.steps).get_epsilon_for_delta(1e-5)
    assert 5.98 < unlabeled <= 6.0 + 5e-3


@pytest.mark.slow
def test_beside_secret_draws_the_drawn_lose_little():
    """The split between drawn and others leaves the drawn most of what they could have."""
    alone = planned(spec(secret=True, self_training=None, strategy=Strategy.NAIVE))
    both = planned(spec(secret=True, strategy=Strategy.NAIVE))
    known = planned(spec(secret=False, strategy=Strategy.NAIVE))
    noise = [plan.plan.phases[0].training.noise_multiplier for plan in (alone, both, known)]
    assert noise[0] < noise[1] < 1.25 * noise[0]
    assert noise[1] < noise[2], "the draw's secrecy still counts"


def test_nobody_unlabeled_ends_above_the_promise_where_most_are_drawn():
    wishes: dict[str, Any] = {
        "pool_size": 1_000,
        "initial": 900,
        "queries": (),
        "strategy": Strategy.NAIVE,
    }
    certified = planned(spec(secret=True, epsilon=1.0, **wishes))
    assert certified.cohorts[-1].spent.epsilon_pld <= 1.0
    assert 0.9 < certified.epsilon_pld <= 1.0


def test_steps_and_rate_follow_the_planned_number_of_unlabeled():
    base = unlabeled_phase(SelfTraining(epochs=6), 9_001)
    assert base.sample_rate == 901 / 9_001 and base.steps == 6 * 9
    base = unlabeled_phase(SelfTraining(epochs=2, batch_size=20_000), 9_000)
    assert base.sample_rate == 1 and base.steps == 2


@pytest.mark.slow
def test_rdp_plans_it_as_well():
    certified = planned(spec(accountant=Accountant.RDP, acquisition=Acquisition.MARGIN))
    assert 0.95 * 6.0 < certified.epsilon_rdp <= 6.0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pool_size": 1_000}, "none is left"),
        (
            {"acquisition": Acquisition.MARGIN, "adjacency": Adjacency.REPLACE_ONE,
             "strategy": Strategy.NAIVE},
            "replace_one",
        ),
        ({"secret": True, "adjacency": Adjacency.REPLACE_ONE}, "secret_draw"),
    ],
)  # fmt: skip
def test_what_cannot_be_proven_is_refused(changes, reason):
    with pytest.raises(ParameterError) as refusal:
        spec(**changes)
    assert reason in str(refusal.value)


@pytest.mark.slow
def test_replace_one_without_secrets_is_planned():
    certified = planned(spec(adjacency=Adjacency.REPLACE_ONE))
    assert 5.9 < certified.epsilon_pld <= 6.0


def test_plans_without_it_are_written_as_before():
    assert "self_training" not in plain(spec(self_training=None))


@pytest.mark.parametrize("way", quick_and_slow(["open draws", "gates"], MODES))
def test_it_is_explained(way):
    certified = planned(spec(*MODES[way]))
    remarks = {remark.topic: remark for remark in explain_campaign(certified)}
    numbers = remarks["Unlabeled records"].numbers
    assert numbers["records"] == 9_000
    assert numbers["epsilon"] == certified.cohorts[-1].spent.epsilon_pld


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [1_200, 3_000])
def test_those_put_aside_are_promised_as_much(candidates):
    """What the last phase alone tells of them: dp-accounting's optimistic loss, a lower bound."""
    wishes = spec(*MODES["secret draw and gates"], strategy=NAIVE)
    certified = planned(replace(wishes, candidates=candidates))
    plan, target = certified.plan, certified.plan.spec.target
    first, last = plan.phases[0].selection, plan.phases[-1].training
    assert isinstance(first, SecretRandomDraw)
    draw = first.draw
    aside = (1 - draw.chance) * (1 - draw.candidates)
    assert aside > 0.5  # most of the pool
    told = theirs.from_gaussian_mechanism(
        last.noise_multiplier,
        sampling_prob=last.sample_rate_new,
        pessimistic_estimate=False,
        value_discretization_interval=1e-3,
        neighboring_relation=NeighboringRelation.REPLACE_SPECIAL,
    ).self_compose(last.steps)
    least = aside * told.get_delta_for_epsilon(target.epsilon - math.log(aside))
    assert least <= target.delta

    summary = certified.summary()
    passed = [cohort["epsilon_pld"] > target.epsilon for cohort in summary["cohorts"]]
    assert any(passed) is (candidates == 1_200)
    said = above_the_promise(summary["cohorts"], summary, whole=certified.epsilon)
    assert (said is not None) is any(passed)  # and nothing of a promise that is broken:
    assert above_the_promise(summary["cohorts"], summary, whole=2 * target.epsilon) is None
    for explained in (False, True):  # an explanation says it in its own words, and once
        shown = certified_view(certified, asked=NAIVE, explained=explained).words
        assert (("", said) in shown) is (any(passed) and not explained)
