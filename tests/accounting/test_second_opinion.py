"""The second opinion: the envelope once more, by dp-accounting's distributions."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from pytest import approx

from dpal.accounting import second_opinion as oracle
from dpal.accounting.cohort_spending import campaign_epsilon, second_opinion
from dpal.accounting.events import (
    FIGURES,
    Charge,
    NoisyFigures,
    NoisyScores,
    PhaseExposure,
    RandomizedResponse,
    Release,
)
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import Acquisition, SelectionMode, Strategy
from dpal.planning.certify_campaign import PLANNERS
from dpal.planning.cohort_budget import Budget
from dpal.planning.strategies.naive import plan_naive
from dpal.privacy import Adjacency, PrivacyTarget
from tests.planning.specs import campaign
from tests.variants import quick_and_slow

MODES = list(SelectionMode)


def small(mode: SelectionMode, adjacency: Adjacency, **changes) -> Plan:
    settings = {"initial": 600, "queries": (300, 300), "batch_size": 128, "epochs": 3, "epsilon": 3}
    if mode is SelectionMode.HIDDEN and not changes:
        settings |= {"threshold_noise": 2.0, "epsilon": 6}  # loud enough to be seen
    spec = campaign(
        selection=mode, adjacency=adjacency, strategy=Strategy.NAIVE, **{**settings, **changes}
    )
    return plan_naive(Budget(spec, spec.planning_epsilon))


EVERY = list(product(MODES, Adjacency))


@pytest.mark.parametrize(
    ("mode", "adjacency"), quick_and_slow([EVERY[0], EVERY[3], EVERY[4]], EVERY)
)
def test_both_engines_agree_on_every_path(mode, adjacency):
    plan = small(mode, adjacency)
    target = plan.spec.target
    releases = list(plan.releases())
    for count in (2, len(releases)):  # also in the middle of a campaign
        made = releases[:count]
        ours, theirs = campaign_epsilon(made, target), second_opinion(made, target)
        assert theirs == approx(ours, abs=5e-3)


@pytest.mark.parametrize(
    "strategy",
    quick_and_slow([Strategy.CONTINUAL], [s for s in Strategy if s is not Strategy.NAIVE]),
)
def test_both_engines_agree_where_rates_differ(strategy):
    spec = campaign(
        initial=600,
        queries=(300, 300),
        batch_size=128,
        epochs=3,
        epsilon=3.0,
        strategy=strategy,
        selection=SelectionMode.VISIBLE,
    )
    plan = PLANNERS[strategy](Budget(spec, spec.planning_epsilon))
    releases = list(plan.releases())
    ours = campaign_epsilon(releases, spec.target)
    assert second_opinion(releases, spec.target) == approx(ours, abs=5e-3)


def test_selection_by_chance_is_the_worst_cohort():
    plan = small(SelectionMode.PAPER, Adjacency.ZERO_OUT, acquisition=Acquisition.RANDOM)
    first = [
        phase.training.new if phase.index == 0 else phase.training.old for phase in plan.phases
    ]
    alone = oracle.epsilon_by_pld(first, delta=plan.spec.target.delta, adjacency=Adjacency.ZERO_OUT)
    # The walk looks at every 0.002nd epsilon and takes the next one above.
    whole = second_opinion(list(plan.releases()), plan.spec.target)
    assert alone - 1e-6 <= whole <= alone + 2.1e-3


def test_what_it_does_not_look_at_is_infinite():
    plan = small(SelectionMode.PAPER, Adjacency.ZERO_OUT)
    target = PrivacyTarget(epsilon=0.01, delta=1e-30)
    assert second_opinion(list(plan.releases()), target) == math.inf


def test_a_finer_grid_is_tighter():
    trained = [PhaseExposure(steps=200, sample_rate=0.1, noise_multiplier=1.0)]
    costs = [
        oracle.epsilon_by_pld(
            trained, delta=1e-5, adjacency=Adjacency.ZERO_OUT, discretization=width
        )
        for width in (1e-4, 1e-3, 1e-2)
    ]
    assert costs == sorted(costs)
    assert costs[1] - costs[0] < 2e-3


@pytest.mark.parametrize("removing", [True, False])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_curves_are_what_dp_accounting_evaluates(adjacency, removing):
    """To the last bit: only its loop in Python is left out."""
    events = (
        PhaseExposure(steps=40, sample_rate=0.1, noise_multiplier=1.2),
        NoisyScores(epsilon=0.25),
    )
    composed = oracle._composed(events, adjacency, 1e-3)
    epsilons = np.arange(-4, 4, 0.01)
    for distribution in (composed, oracle._composed(events[1:], adjacency, 1e-3)):
        one_way = oracle._one_way(distribution, removing)
        expected = one_way.get_delta_for_epsilon(epsilons)
        assert np.array_equal(oracle._deltas(one_way, epsilons), expected)
        assert 0 < np.min(expected[epsilons < 0]) <= 1


def test_pure_losses_alone_are_exact():
    scores = [NoisyScores(epsilon=0.25)] * 4
    found = oracle.epsilon_by_pld(scores, delta=1e-12, adjacency=Adjacency.ZERO_OUT)
    assert found == approx(1.0, abs=1e-2)


def test_answers_are_charged_by_path_only():
    answer = RandomizedResponse(above=0.6, below=0.2, blank=0.3)
    with pytest.raises(ParameterError, match="by path"):
        oracle.epsilon_by_pld([answer], delta=1e-5, adjacency=Adjacency.ZERO_OUT)


def test_of_a_huge_promise_as_much_is_looked_at_as_has_a_number():
    """Of epsilon 1e4 every curve had ten million samples, most of which overflowed."""
    once = Charge(cohorts=("0",), event=NoisyFigures(noise_multiplier=0.1))
    releases = [Release(name="once", kind=FIGURES, phase=0, charges=(once,))]
    found, huge = (
        second_opinion(releases, PrivacyTarget(epsilon=epsilon, delta=1e-5))
        for epsilon in (100.0, 1e4)
    )
    assert huge == approx(found, abs=5e-3)
    assert 91 < huge < 92
