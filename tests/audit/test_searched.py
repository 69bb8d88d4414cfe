"""The audit of a campaign with a search trains its trials, too, with their own settings."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dpal.audit.attack import training_releases
from dpal.audit.canaries import with_fewer_steps
from dpal.audit.findings import AuditFinding, Layer
from dpal.planning.campaign_plan import Plan, trial_release
from dpal.planning.certify_campaign import certified_plan
from dpal.training.clipping import Clipper
from dpal.training.dp_sgd import PrivateGradient
from tests.audit.auditing import EFFORT, audited, campaign, failed

OTHER_NORM = 0.5


@pytest.fixture(scope="module")
def plan() -> Plan:
    # As many steps of trials as of phases, so that the attack sees what trials do.
    search = {"trials": [{"max_grad_norm": OTHER_NORM, "learning_rate": 4.0}], "epochs": 10}
    return certified_plan(campaign(search=search, acquisition="random")).plan


def findings_at_other(findings: Iterable[AuditFinding]) -> list[AuditFinding]:
    """Those about a trial that clips to another norm than the campaign."""
    return [one for one in findings if one.what.endswith(f"max_grad_norm {OTHER_NORM:g}")]


def test_trials_are_trained_and_claimed(plan, tmp_path):
    report = audited(plan, tmp_path)
    assert report.passed, report.failed
    assert {one.layer for one in findings_at_other(report.findings)} == {
        Layer.STEP, Layer.MECHANISM
    }  # fmt: skip
    ran = with_fewer_steps(plan, most_steps=EFFORT.most_steps)
    assert ran.trial is not None
    phases = sum(phase.steps for phase in ran.phases)
    assert f"{phases + 2 * ran.trial.steps:,}" in {
        one.measured for one in report.findings if one.measured == one.expected
    }
    claimed = [release.name for release in training_releases(ran)]
    assert claimed[:3] == [trial_release(1), trial_release(2), "phase-0/training"]


@pytest.mark.slow
def test_a_trial_with_half_of_its_noise_is_found(plan, tmp_path, monkeypatch):
    real = PrivateGradient.__init__

    def halved(self, *arguments, max_grad_norm, noise_multiplier, **others):
        if max_grad_norm == OTHER_NORM:
            noise_multiplier /= 2
        real(
            self,
            *arguments,
            max_grad_norm=max_grad_norm,
            noise_multiplier=noise_multiplier,
            **others,
        )

    monkeypatch.setattr(PrivateGradient, "__init__", halved)
    report = audited(plan, tmp_path)
    assert {one.layer for one in findings_at_other(report.failed)} == {Layer.MECHANISM}
    assert "attack" in failed(report)


@pytest.mark.slow
@pytest.mark.statistical
def test_a_trial_that_clips_to_the_campaigns_norm_is_found(plan, tmp_path, monkeypatch):
    real = Clipper.__init__

    def larger(self, clipping, *, max_grad_norm, **others):
        real(self, clipping, max_grad_norm=max(max_grad_norm, 2.0), **others)

    monkeypatch.setattr(Clipper, "__init__", larger)
    report = audited(plan, tmp_path)
    assert Layer.STEP in {one.layer for one in findings_at_other(report.failed)}
