"""Certificates of campaigns whose last phase trains on pseudo-labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpal.certificate.verify import verify_certificate
from dpal.planning.campaign_plan import Plan
from tests.certificate.certifying import asserted, certified, failures, plan_of, run


def self_trained(mode: str, **changes: Any) -> Plan:
    return plan_of(mode, self_training={"epochs": 2}, **changes)


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
