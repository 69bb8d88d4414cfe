"""Audits of models that read texts, and of models of which only a part trains."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dpal import randomness
from dpal.audit.audit_campaign_plan import audit
from dpal.audit.findings import AuditReport
from dpal.models.spec import ModelSpec
from dpal.training.dp_sgd import PrivateGradient
from tests.audit.auditing import EFFORT, audited, campaign, failed
from tests.conftest import CLASSES
from tests.models.tiny_bert import MAX_TOKENS, SIZES, spec_of, write_folder
from tests.planning.specs import planned


def texts(count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Public records, as the tokenizer gives them: numbers of tokens, and segments."""
    generator = torch.Generator().manual_seed(7)
    size = (count, 2, MAX_TOKENS)
    inputs = torch.randint(1, SIZES["vocab_size"], size, generator=generator, dtype=torch.int32)
    inputs[:, 1] = 0
    inputs[:, 0, MAX_TOKENS // 2 :] *= torch.arange(count)[:, None].to(torch.int32) % 2  # padding
    return inputs, torch.arange(count) % CLASSES


def audited_texts(model: ModelSpec, scratch) -> AuditReport:
    plan = planned(replace(campaign(), model=model))
    return audit(plan, *texts(), effort=EFFORT, scratch=scratch, fresh=randomness.secure)


@pytest.mark.parametrize("changed", [{}, pytest.param({"adapter_rank": 2}, marks=pytest.mark.slow)],
                         ids=["last layer", "adapters"])  # fmt: skip
def test_texts_are_audited(tmp_path, changed):
    """Numbers of tokens are no pixels: none is loud, and none is NaN."""
    model = spec_of(write_folder(tmp_path / "bert"), classes=CLASSES, **changed)
    report = audited_texts(model, tmp_path / "scratch")
    assert report.passed, failed(report)


@pytest.mark.slow
def test_texts_that_are_not_clipped_are_found(tmp_path, monkeypatch):
    real = PrivateGradient.clipped_sum
    monkeypatch.setattr(
        PrivateGradient,
        "clipped_sum",
        lambda self, *given, **named: 3 * real(self, *given, **named),
    )
    model = spec_of(write_folder(tmp_path / "bert"), classes=CLASSES)
    assert "step" in failed(audited_texts(model, tmp_path / "scratch"))


@pytest.mark.slow
def test_a_model_of_which_a_part_trains_is_audited(tmp_path):
    spec = campaign()
    model = replace(spec.model, name="mlp", hidden=(5,), trainable=("3",))
    report = audited(planned(replace(spec, model=model)), tmp_path)
    assert report.passed, failed(report)
