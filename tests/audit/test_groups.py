"""Audits of plans that protect groups: a canary is a person with several records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import Groups
from dpal.privacy import Unit
from dpal.training.dp_sgd import PrivateGradient
from dpal.training.poisson_batches import GroupBatches
from tests.audit.auditing import audited, campaign, failed
from tests.planning.specs import planned


@pytest.fixture(scope="module")
def plan() -> Plan:
    spec = campaign()
    target = replace(spec.target, unit=Unit.GROUP)
    return planned(replace(spec, target=target, groups=Groups(column="person", records=2)))


def test_sound_code_passes(plan, tmp_path):
    report = audited(plan, tmp_path)
    assert report.passed, [finding.likely for finding in report.failed]
    assert report.false_alarm < 1e-4


def test_records_that_are_clipped_instead_of_persons(plan, tmp_path, monkeypatch):
    """Each person then moves a step by twice the bound."""
    real = PrivateGradient.clipped_sum
    monkeypatch.setattr(
        PrivateGradient,
        "clipped_sum",
        lambda self, inputs, labels, sizes=None: real(self, inputs, labels),
    )
    assert "attack" in failed(audited(plan, tmp_path))


@pytest.mark.slow
@pytest.mark.statistical
def test_persons_who_join_by_a_coin_for_each_record(plan, tmp_path, monkeypatch):
    """Whoever has three records then is in nearly every batch."""
    real = vars(GroupBatches)["of_part"].__func__

    def wrong(cls, *given, **named):
        batches = real(cls, *given, **named)
        rates = tuple((rows, 1 - (1 - rate) ** 3) for rows, rate in batches.groups)
        return replace(batches, groups=rates)

    monkeypatch.setattr(GroupBatches, "of_part", classmethod(wrong))
    assert failed(audited(plan, tmp_path))
