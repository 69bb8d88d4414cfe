"""Small audits, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from dpal import randomness
from dpal.audit.audit_campaign_plan import Effort, audit
from dpal.audit.findings import AuditReport
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import CampaignSpec
from tests.conftest import CLASSES, WIDTH, small_spec
from tests.planning.specs import planned

EFFORT = Effort(canaries=300, most_steps=60, draws=1 << 18)


def records(count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Validation records, as a model sees them."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.arange(count) % CLASSES
    centres = 2.0 * torch.eye(CLASSES, WIDTH)
    return centres[labels] + 0.5 * torch.randn(count, WIDTH, generator=generator), labels


def small_plan(**overrides: Any) -> Plan:
    """A plan at C = 2, where noise over C is not noise times C."""
    return planned(campaign(**overrides))


def campaign(**overrides: Any) -> CampaignSpec:
    return small_spec(**{"training__max_grad_norm": 2.0, **overrides})


def audited(plan: Plan, scratch: Path, effort: Effort = EFFORT) -> AuditReport:
    """The real audit, from the real source of noise."""
    inputs, labels = records()
    scratch.mkdir(parents=True, exist_ok=True)
    return audit(
        plan,
        inputs,
        labels,
        effort=effort,
        scratch=scratch,
        fresh=lambda: randomness.secure(),
    )


def failed(report: AuditReport) -> set[str]:
    """Layers that found something."""
    return {one.layer.value for one in report.failed}
