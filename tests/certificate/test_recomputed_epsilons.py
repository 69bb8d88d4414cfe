"""How far two accountants may lie apart, against what they really differ by."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from pytest import approx

from dpal.accounting import second_opinion
from dpal.accounting.accountant_tolerance import tolerance
from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import Charge, PhaseExposure, Release
from dpal.certificate.recomputed_epsilons import cohort_by_dp_accounting, recompute_figures
from dpal.privacy import PrivacyTarget
from tests.certificate.certifying import plan_of

# Short and long, nearly full batches and rare ones, small and large epsilon.
TRAININGS = [
    (PhaseExposure(steps=200, sample_rate=0.3, noise_multiplier=3.0), 1e-5),
    (PhaseExposure(steps=1000, sample_rate=0.1, noise_multiplier=2.0), 1e-5),
    (PhaseExposure(steps=500, sample_rate=1.0, noise_multiplier=20.0), 1e-5),
    (PhaseExposure(steps=20_000, sample_rate=0.01, noise_multiplier=1.0), 1e-6),
]


def trained(exposure):
    charge = Charge(cohorts=("0",), event=exposure)
    return (Release(name="phase-0/training", kind="training", phase=0, charges=(charge,)),)


def promised(exposure, delta):
    """A promise that these events just keep."""
    wide = PrivacyTarget(epsilon=20, delta=delta)
    return replace(wide, epsilon=campaign_epsilon(trained(exposure), wide))


@pytest.mark.parametrize(("exposure", "delta"), TRAININGS)
def test_dp_accounting_is_within_the_tolerance(exposure, delta):
    target = promised(exposure, delta)
    second = second_opinion.second_opinion_epsilon(
        trained(exposure), delta=delta, adjacency=target.adjacency, limit=target.epsilon
    )
    apart = tolerance(trained(exposure), target)
    assert target.epsilon - 1e-3 <= second <= target.epsilon + apart
    assert apart < 0.02


@pytest.mark.parametrize(("exposure", "delta"), TRAININGS[:3])
@pytest.mark.parametrize("width", [1e-2, 2e-2])
def test_the_tolerance_is_derived_and_not_guessed(exposure, delta, width):
    """On coarse grids the excess is seen; the formula bounds it, and not from afar.

    Losses lie evenly in their cells, for which the variance is h^2 / 6 and not the bound's
    h^2 / 4: two thirds of the bound are expected.
    """
    target = promised(exposure, delta)
    coarse = second_opinion.epsilon_by_pld(
        [exposure], delta=delta, adjacency=target.adjacency, discretization=width
    )
    further = replace(target, delta=delta / math.e)
    slope = 1 / (campaign_epsilon(trained(exposure), further) - target.epsilon)
    bound = (1 + slope) * exposure.steps * width**2 / 8
    assert 0.5 * bound < coarse - target.epsilon < bound
    assert coarse - target.epsilon == approx(2 / 3 * bound, rel=0.1)


def test_cohorts_by_both_accountants(campaign):
    """Answers, too, which dp-accounting does not know: in either direction."""
    agree(campaign.plan)


def test_cohorts_by_both_accountants_under_replace_one():
    agree(plan_of("visible", privacy__adjacency="replace_one"))


def agree(plan):
    releases, target = tuple(plan.releases()), plan.spec.target
    figures = recompute_figures(releases, target, plan.cohorts)
    for cohort in plan.cohorts:
        ours = figures.cohorts[cohort]
        second = cohort_by_dp_accounting(cohort, releases, target)
        assert ours["epsilon_pld"] == approx(second, abs=tolerance(releases, target))
        assert second <= ours["epsilon_rdp"]


def test_with_nothing_released_there_is_only_the_grid():
    nothing = (Release(name="phase-0/training", kind="training", phase=0, charges=()),)
    assert tolerance(nothing, PrivacyTarget(epsilon=1, delta=1e-5)) == 2e-3
