"""Certificates of campaigns whose last phase trains on pseudo-labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpal.certificate.verify import verify_certificate
from dpal.planning.campaign_plan import Plan
from dpal.planning.selection_steps import Remaining
from tests.certificate.certifying import asserted, certified, failures, plan_of, run


def self_trained(mode: str, **changes: Any) -> Plan:
    return plan_of(mode, self_training={"epochs": 2}, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("secret", [False, True])
def test_a_true_certificate_passes(tmp_path, secret):
    plan = self_trained("hidden", privacy__secret_draw=secret)
    _, entries = run(tmp_path, plan)
    document = certified(entries, plan)
    assert failures(verify_certificate(document, ledger=entries)) == {}
    assert "self_training" in document
    plain_plan = plan_of("hidden")
    (tmp_path / "plain").mkdir()
    assert "self_training" not in certified(run(tmp_path / "plain", plain_plan)[1], plain_plan)
    events = {cohort["cohort"]: cohort["events"] for cohort in document["cohorts"]}
    trained = [event for event in events["3"] if event["release"] == "phase-3/training"]
    assert [event["mechanism"] for event in trained] == ["poisson_subsampled_gaussian"]
    assert not [event for event in events["0"] if event["release"] == "phase-3/training"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["hidden", "visible", "paper"])
def test_unlabeled_records_that_train_and_are_not_charged_are_found(tmp_path, mode):
    """Somebody whose ledger charges others than those who train."""
    plan = self_trained(mode)
    releases = list(plan.releases())
    last = releases[-1]
    free = replace(last, charges=tuple(
        replace(charge, cohorts=("never_selected",)) for charge in last.charges
    ))  # fmt: skip
    _, entries = run(tmp_path, plan, releases=[*releases[:-1], free])
    assert "plan" in failures(verify_certificate(asserted(entries, plan), ledger=entries))


def test_what_did_not_happen_is_not_said(tmp_path):
    plan = self_trained("hidden")
    _, entries = run(tmp_path, plan, stop_after=2)
    assert "self_training" not in certified(entries, plan)


def test_behind_gates_a_replacement_may_have_been_guessed(tmp_path):
    """Under replace-one the labeled are charged for that phase as well: such plans are forged."""
    plan = plan_of("hidden", privacy__adjacency="replace_one")
    last = plan.phases[-1]
    training = replace(last.training, sample_rate_old=0.0)
    rest = replace(last, index=3, cohort_size=100, selection=Remaining(), training=training)
    forged = replace(plan, phases=(*plan.phases, rest))
    releases = [
        replace(
            release,
            charges=tuple(
                charge for charge in release.charges
                if release.phase < 3 or not {"1", "2"} & set(charge.cohorts)
            ),
        )
        for release in forged.releases()
    ]  # fmt: skip
    _, entries = run(tmp_path, forged, releases=releases, stop_after=len(releases) - 1)
    found = failures(verify_certificate(asserted(entries, forged), ledger=entries))
    assert "trains on cohort 1" in found["plan"]
