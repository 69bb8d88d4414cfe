"""Figures on protected records: what they cost, to whom, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpal.accounting.accountant_tolerance import tolerance
from dpal.accounting.cohort_spending import campaign_epsilon, second_opinion, spending
from dpal.accounting.events import NEVER_SELECTED, VALIDATION
from dpal.accounting.validation_cohort import about_pool, about_validation
from dpal.accounting.validation_count_sensitivity import MeasuredCounts
from dpal.canonical import plain
from dpal.errors import ParameterError, PlanRejected
from dpal.labels import Task
from dpal.planning.campaign_spec import ProtectedValidation
from dpal.planning.certify_campaign import certified_plan, certify_plan
from dpal.planning.measured_phases import (
    calibrated_figures,
    expected_auc_half_width,
    expected_f1_half_width,
    expected_half_width,
    figures_release,
)
from dpal.privacy import Accountant, Adjacency, PrivacyTarget, Unit
from tests.conftest import small_spec

TARGET = PrivacyTarget(epsilon=8.0, delta=1e-5)
PROTECTED = ProtectedValidation(records=2000, epsilon=8.0)
SPEC = small_spec(acquisition="random")


def calibrated(target=TARGET, validation=PROTECTED, *, accountant=Accountant.PLD, labels=1):
    counted = MeasuredCounts(labels=labels)
    return calibrated_figures(validation, target, models=5, accountant=accountant, counted=counted)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("accountant", Accountant)
def test_the_least_noise_keeps_the_promise_by_both_accountants(adjacency, accountant):
    target = replace(TARGET, adjacency=adjacency)
    event = calibrated(target, accountant=accountant)
    assert event.counts_moved == (2 if adjacency is Adjacency.REPLACE_ONE else 1)

    def cost(noise: float) -> float:
        quieter = replace(event, noise_multiplier=noise)
        releases = [figures_release(phase, quieter) for phase in range(5)]
        return campaign_epsilon(releases, target, accountant=accountant)

    assert cost(event.noise_multiplier) <= 8 < cost(0.99 * event.noise_multiplier)
    releases = tuple(figures_release(phase, event) for phase in range(5))
    assert second_opinion(releases, target) <= 8 + tolerance(releases, target)


def test_validation_records_are_a_cohort_apart_from_the_pools():
    """Each part costs what it costs alone, and the campaign what the dearer one does."""
    plain = certified_plan(SPEC)
    protected = replace(PROTECTED, records=300)
    measured = certified_plan(replace(SPEC, validation=protected))
    releases = list(measured.plan.releases())
    assert about_pool(releases) == list(plain.plan.releases())
    assert len(about_validation(releases)) == len(measured.plan.phases)
    assert measured.cohorts == plain.cohorts
    assert measured.validation is not None
    assert measured.validation.spent.epsilon_pld == pytest.approx(8, abs=1e-3)
    assert measured.epsilon == max(plain.epsilon, measured.validation.spent.epsilon_pld)
    assert spending("0", releases, SPEC.target) == plain.cohorts[0].spent
    assert spending(NEVER_SELECTED, releases, SPEC.target).epsilon_pld == 0
    assert spending(VALIDATION, [], SPEC.target).epsilon_pld == 0
    assert plain.plan.digest != measured.plan.digest
    told = measured.summary()["validation"]
    assert told["records"] == 300 and told["epsilon"] <= 8
    assert "validation" not in plain.summary()


def test_less_may_be_promised_to_validation_records_and_never_more():
    cheap = calibrated(validation=replace(PROTECTED, epsilon=1.0))
    assert cheap.noise > 3 * calibrated().noise
    with pytest.raises(ParameterError, match=r"validation\.epsilon"):
        calibrated(validation=replace(PROTECTED, epsilon=9.0))
    with pytest.raises(ParameterError, match=r"validation\.epsilon"):
        calibrated(validation=replace(PROTECTED, epsilon=1e-5))


@pytest.mark.parametrize(
    "target", [replace(TARGET, unit=Unit.GROUP), replace(TARGET, delta=1 / 2000)]
)
def test_what_cannot_be_protected_is_refused(target):
    with pytest.raises(ParameterError) as refused:
        calibrated(target)
    assert refused.value.released is False


def test_several_labels_take_noise_for_all_that_a_record_moves():
    """Fourteen labels and their spread: the same multiplier, over sqrt(15) instead of 1."""
    event, alone = calibrated(labels=14), calibrated()
    assert (event.counts_moved, event.noise_multiplier) == (15, alone.noise_multiplier)
    assert event.noise == pytest.approx(15**0.5 * alone.noise)
    replaced = calibrated(replace(TARGET, adjacency=Adjacency.REPLACE_ONE), labels=14)
    assert replaced.counts_moved == 29


def test_areas_cost_the_other_figures_precision_and_are_for_labels():
    model = replace(SPEC.model, classes=2)
    validation = replace(PROTECTED, records=300)
    plain_plan = certified_plan(replace(SPEC, model=model, validation=validation))
    asked = replace(SPEC, model=model, validation=replace(validation, auc=True))
    measured = certified_plan(asked)
    told, before = (one.summary()["validation"] for one in (measured, plain_plan))
    assert told["noise"] == pytest.approx(2**0.5 * before["noise"])
    assert told["half_width"] > before["half_width"]
    assert told["auc_half_width"] > expected_auc_half_width(300, 1, 0.0)
    assert "auc_half_width" not in before and "figure" not in before
    assert "auc" not in plain(plain_plan.plan)["spec"]["validation"]
    with pytest.raises(ParameterError) as refused:
        replace(asked, model=SPEC.model)
    assert "validation.auc" in str(refused.value)


def test_no_plan_is_certified_that_has_noise_for_fewer_counts():
    model = replace(SPEC.model, task=Task.MULTI_LABEL)
    validation = replace(PROTECTED, records=300)
    measured = certified_plan(replace(SPEC, model=model, validation=validation))
    told = measured.summary()["validation"]
    assert told["figure"] == "micro_f1"
    assert told["half_width"] > expected_f1_half_width(300, 3, 0.0)
    assert measured.plan.figures is not None
    assert measured.plan.figures.counts_moved == 4
    fewer = replace(measured.plan.figures, counts_moved=3)
    with pytest.raises(PlanRejected):
        certify_plan(replace(measured.plan, figures=fewer))


def test_precision_is_that_of_sampling_where_there_is_no_noise():
    """1.96 standard errors of 2,000 records at 80 %; noise only widens it."""
    assert expected_half_width(2000, 10, 0.0) == pytest.approx(0.01753, abs=1e-4)
    assert expected_half_width(2000, 10, 20.0) > 2 * expected_half_width(2000, 10, 0.0)
