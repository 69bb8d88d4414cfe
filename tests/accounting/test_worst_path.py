"""The certificate against true deltas, found by enumerating everything that can happen."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from pytest import approx
from scipy.optimize import brentq
from scipy.special import ndtr

from dpal.accounting import pld
from dpal.accounting.cohort_spending import Accountant, campaign_epsilon, spending
from dpal.accounting.events import (
    NoisyScores,
    NoisyThreshold,
    PhaseExposure,
    RandomizedResponse,
    Release,
)
from dpal.accounting.profiles import PrivacyProfile
from dpal.accounting.single_step_curves import Direction
from dpal.accounting.worst_path import campaign_profile, grid_of
from dpal.mechanisms.randomized_response import anchored_rates
from dpal.planning.campaign_plan import Phase, Plan, TrainingPhase
from dpal.planning.campaign_spec import SelectionMode, Strategy
from dpal.planning.selection_steps import (
    HiddenGate,
    NoisyRanking,
    RandomDraw,
    SelectionStep,
    VisibleAnswers,
)
from dpal.privacy import Adjacency, PrivacyTarget
from tests.accounting.games import Content, delta, law
from tests.accounting.worst_case import WorstCase
from tests.planning.specs import campaign
from tests.variants import quick_and_slow

MODES = list(SelectionMode)
EPSILONS = np.array([0.0, 0.3, 1.0, 2.0])
WANTED = list(itertools.product((False, True), (False, True), (False, True)))
BLANKS = [Content(gradient=0, blank=True, wanted=(fixed, fixed, fixed)) for fixed in (False, True)]


def small_plan(mode: SelectionMode, adjacency: Adjacency) -> Plan:
    """Three phases of one step on a pool of three records, so noisy that deltas are seen."""
    above, below = anchored_rates(1.0, 0.4)
    threshold = NoisyThreshold(noise_multiplier=1.5)
    # The gate labels one record and aims at none; this is the chance that two pass.
    noise = 0.6
    overflow = float(ndtr((0.5 - 2) / noise))
    selections: dict[SelectionMode, SelectionStep] = {
        SelectionMode.PAPER: NoisyRanking(scores=NoisyScores(epsilon=0.8)),
        SelectionMode.VISIBLE: VisibleAnswers(
            threshold=threshold,
            comparisons=1,
            aim=1,
            answers=RandomizedResponse(above=above, below=below, blank=0.4),
        ),
        SelectionMode.HIDDEN: HiddenGate(
            threshold=NoisyThreshold(noise_multiplier=noise, failure_probability=overflow),
            comparisons=1,
            aim=0,
        ),
    }
    rates = [(0.0, 0.5), (0.3, 0.6), (0.4, 0.7)]
    phases = tuple(
        Phase(
            index=at,
            cohort_size=1,
            selection=selections[mode] if at else RandomDraw(),
            training=TrainingPhase(
                steps=1,
                noise_multiplier=1.2,
                sample_rate_old=old,
                sample_rate_new=new,
                expected_batch_size=1,
            ),
        )
        for at, (old, new) in enumerate(rates)
    )
    spec = campaign(
        pool_size=3,
        initial=1,
        queries=(1, 1),
        selection=mode,
        adjacency=adjacency,
        strategy=Strategy.NAIVE,
    )
    return Plan(spec, phases)


def certified(
    releases: list[Release], adjacency: Adjacency, direction: Direction
) -> PrivacyProfile:
    grid = grid_of(releases, delta=1e-6, adjacency=adjacency, accuracy=pld.CERTIFY)
    return campaign_profile(releases, grid=grid, adjacency=adjacency, direction=direction)


def contents(adjacency: Adjacency) -> list[tuple[Content, Content]]:
    """Record 0 in both worlds: every way in which its path can follow released values."""
    records = [Content(gradient=1, wanted=wanted) for wanted in WANTED]
    if adjacency is Adjacency.ZERO_OUT:
        return list(itertools.product(records, BLANKS))
    phases = itertools.product((False, True), repeat=2)
    others = [Content(gradient=-1, wanted=(first, second, second)) for first, second in phases]
    return list(itertools.product(records, others))


# Each mode and each adjacency is in the default suite.
CASES = list(itertools.product(MODES, Adjacency))
LONG = [
    (SelectionMode.VISIBLE, Adjacency.ZERO_OUT),
    (SelectionMode.VISIBLE, Adjacency.REPLACE_ONE),
    (SelectionMode.PAPER, Adjacency.REPLACE_ONE),
]


@pytest.mark.parametrize(
    ("mode", "adjacency"), quick_and_slow([one for one in CASES if one not in LONG], CASES)
)
def test_no_small_pool_loses_more_than_its_certificate(mode, adjacency):
    plan = small_plan(mode, adjacency)
    releases = list(plan.releases())
    trainings = [one for one in releases if not one.selects]
    bounds = {d: certified(releases, adjacency, d) for d in Direction}
    uncharged = {d: certified(trainings, adjacency, d) for d in Direction}
    nearest, exceeded = 0.0, False
    for initial in (0, 1):
        # Record 0 is either labeled from the start, so that its scores are never read, or not.
        pairs = contents(adjacency)[:: 1 if initial else 1000]
        laws = {one: law(plan, one, initial=initial) for one in itertools.chain(*pairs)}
        assert all(sum(chances.values()) == approx(1) for chances in laws.values())
        for pair, direction in itertools.product(pairs, Direction):
            one, other = pair if direction is Direction.REMOVE else pair[::-1]
            true = np.array(delta(laws[one], laws[other], EPSILONS))
            certificate = bounds[direction].at(EPSILONS)
            assert (true <= certificate + 1e-12).all()
            nearest = max(nearest, float((true / certificate).max()))
            exceeded = exceeded or bool((true > uncharged[direction].at(EPSILONS)).any())
    # The pools have teeth: they come close, and selections that were not charged would show.
    assert nearest > 0.8
    assert exceeded


@pytest.mark.parametrize("removing", [True, False])
@pytest.mark.parametrize(
    ("mode", "adjacency"),
    [(mode, Adjacency.ZERO_OUT) for mode in MODES]
    + [(mode, Adjacency.REPLACE_ONE) for mode in MODES if mode is not SelectionMode.HIDDEN],
)
def test_the_certificate_is_the_worst_case_and_hardly_more(mode, adjacency, removing):
    """All outputs of all releases, cut into 40 pieces each, and the worst choice after each."""
    plan = without_overflow(small_plan(mode, adjacency))
    bound = certified(list(plan.releases()), adjacency, list(Direction)[not removing])
    for epsilon in EPSILONS:
        worst = WorstCase(plan, removing, float(epsilon)).delta()
        assert 0.98 * bound.delta(epsilon) <= worst <= bound.delta(epsilon)


def without_overflow(plan: Plan) -> Plan:
    def smooth(phase: Phase) -> Phase:
        gate = phase.selection
        if not isinstance(gate, HiddenGate):
            return phase
        return replace(
            phase,
            selection=replace(gate, threshold=replace(gate.threshold, failure_probability=0.0)),
        )

    return Plan(plan.spec, tuple(map(smooth, plan.phases)))


def test_behind_a_gate_a_replaced_record_is_charged_the_larger_rate():
    """Its twin may enter in any later phase, unseen, and would be new there."""
    plan = small_plan(SelectionMode.HIDDEN, Adjacency.REPLACE_ONE)
    last = next(one for one in plan.releases() if one.name == "phase-2/training")
    rates: dict[str, float] = {}
    for charge in last.charges:
        assert isinstance(charge.event, PhaseExposure)
        rates |= dict.fromkeys(charge.cohorts, charge.event.sample_rate)
    assert rates == {"0": 0.4, "1": 0.7, "2": 0.7}


def test_an_overflow_is_delta():
    plan = small_plan(SelectionMode.HIDDEN, Adjacency.ZERO_OUT)
    with_it, without = (
        certified(list(one.releases()), Adjacency.ZERO_OUT, Direction.REMOVE)
        for one in (plan, without_overflow(plan))
    )
    gate = plan.phases[1].selection
    assert isinstance(gate, HiddenGate)
    overflow = gate.threshold.failure_probability
    for epsilon in EPSILONS:
        assert with_it.delta(epsilon) - without.delta(epsilon) == approx(2 * overflow, rel=0.02)


DELTA = 0.02


def twice_asked() -> Plan:
    """Records are asked twice; who says yes trains in that phase and never again."""
    plan = small_plan(SelectionMode.VISIBLE, Adjacency.ZERO_OUT)
    settings = [(0.5, 0.8, 0.9, 1.0), (2.2, 0.5, 2.6, 0.3)]
    phases = [plan.phases[0]]
    for phase, (epsilon, blank, noise, rate) in zip(plan.phases[1:], settings, strict=True):
        above, below = anchored_rates(epsilon, blank)
        assert isinstance(phase.selection, VisibleAnswers)
        asked = replace(
            phase.selection,
            threshold=NoisyThreshold(noise_multiplier=1e4),  # the game below leaves it out
            answers=RandomizedResponse(above=above, below=below, blank=blank),
        )
        trained = replace(
            phase.training, noise_multiplier=noise, sample_rate_new=rate, sample_rate_old=0.0
        )
        phases.append(replace(phase, selection=asked, training=trained))
    quiet = replace(phases[0].training, noise_multiplier=10.0)
    return Plan(plan.spec, (replace(phases[0], training=quiet), *phases[1:]))


Worlds = tuple[np.ndarray, np.ndarray]  # chances of the same outputs in both worlds


def advantage(worlds: Worlds, epsilon: float) -> float:
    p, q = worlds
    factor = np.exp(epsilon)
    return max(np.maximum(0.0, p - factor * q).sum(), np.maximum(0.0, q - factor * p).sum())


def asked_and_trained(plan: Plan) -> tuple[list[list[Worlds]], list[Worlds]]:
    """By query: answers (yes first) of a high and of a low score; outputs of training."""
    asked, trained = [], []
    for phase in plan.phases[1:]:
        assert isinstance(phase.selection, VisibleAnswers)
        answers, sigma = phase.selection.answers, phase.training.noise_multiplier
        asked.append(
            [
                (np.array([p, 1 - p]), np.array([answers.blank, 1 - answers.blank]))
                for p in (answers.above, answers.below)
            ]
        )
        edges = np.linspace(-6 * sigma, 1 + 6 * sigma, 600)
        idle, moved = (np.diff(ndtr((edges - m) / sigma), prepend=0, append=1) for m in (0, 1))
        rate = phase.training.sample_rate_new
        trained.append(((1 - rate) * idle + rate * moved, idle))
    return asked, trained


def true_delta(plan: Plan, epsilon: float) -> float:
    """A record that scores high at first and low then, in a pool where nobody enters by chance."""
    ((high, _), (_, low)), trained = asked_and_trained(plan)

    def outputs(world: int) -> np.ndarray:
        return np.concatenate(
            [
                high[world][0] * trained[0][world],
                high[world][1] * low[world][0] * trained[1][world],
                [high[world][1] * low[world][1]],
            ]
        )

    return advantage((outputs(0), outputs(1)), epsilon)


def delta_cohort_by_cohort(plan: Plan, epsilon: float) -> float:
    """The worst cohort, as if it had been known beforehand who joins it."""
    (first, second), trained = asked_and_trained(plan)
    cohorts = [[one, trained[0]] for one in first]
    cohorts += [[one, two, trained[1]] for one in first for two in second]

    def outputs(parts: list[Worlds], world: int) -> np.ndarray:
        return reduce(np.outer, [part[world] for part in parts]).ravel()

    return max(advantage((outputs(parts, 0), outputs(parts, 1)), epsilon) for parts in cohorts)


def test_cohort_by_cohort_proves_nothing_where_ids_are_seen():
    """Every cohort by itself is within DELTA, the campaign needs half as much again."""
    plan = twice_asked()
    releases = list(plan.releases())
    target = PrivacyTarget(epsilon=8.0, delta=DELTA)
    shortcut = brentq(lambda x: delta_cohort_by_cohort(plan, x) - DELTA, 0, 20)
    assert true_delta(plan, shortcut) > 1.4 * DELTA
    # What the library calls the campaign's epsilon is not the shortcut, by either accountant.
    for accountant in Accountant:
        offered = campaign_epsilon(releases, target, accountant=accountant)
        assert offered > shortcut + 0.1
        assert true_delta(plan, offered) <= DELTA
    # This record is the worst one, and the envelope is exact.
    needed = brentq(lambda x: true_delta(plan, x) - DELTA, 0, 20)
    assert campaign_epsilon(releases, target) == approx(needed, abs=1e-3)


def test_selection_by_chance_needs_no_envelope():
    """Nothing is looked at, so the worst cohort is the campaign."""
    plan = small_plan(SelectionMode.PAPER, Adjacency.ZERO_OUT)
    plan = Plan(plan.spec, tuple(replace(one, selection=RandomDraw()) for one in plan.phases))
    releases, target = list(plan.releases()), PrivacyTarget(epsilon=8.0, delta=1e-3)
    worst = max(spending(one, releases, target).epsilon_pld for one in plan.cohorts)
    assert campaign_epsilon(releases, target) == approx(worst, abs=1e-9)


def test_nothing_released_costs_nothing():
    assert campaign_epsilon([], PrivacyTarget(epsilon=1.0, delta=1e-6)) == 0.0
