from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.training_recipe import Precision
from dpal.training.backend_names import Backend
from dpal.training.losses import per_record_loss
from dpal.training.per_record.backend import PerRecordGradients
from dpal.training.per_record.book_keeping import BookKeeping
from dpal.training.per_record.choose_backend import per_record_gradients
from dpal.training.per_record.functional import Functional
from dpal.training.per_record.opacus_hooks import OpacusHooks
from tests.training.per_record.oracle import assert_same_sums, model_gradients, normal


class Tied(nn.Module):
    """The weight of a layer is used outside of it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inside, self.out = nn.Linear(4, 3, bias=False), nn.Linear(3, 3)

    def forward(self, inputs):
        return self.out(torch.tanh(self.inside(inputs)) @ self.inside.weight[:, :3])


class Bilinear(nn.Module):
    """A layer that is called with two tensors."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mix = nn.Bilinear(4, 4, 3)

    def forward(self, inputs):
        return self.mix(inputs, inputs)


def chosen(
    model: nn.Module, backend: Backend, precision: Precision = Precision.FP32
) -> PerRecordGradients:
    count = len(list(model.parameters()))
    return per_record_gradients(
        model, backend=backend, loss=per_record_loss(Task.SINGLE_LABEL), groups=[0] * count,
        precision=precision, like=normal(2, 4, seed=1), targets=torch.zeros(2, dtype=torch.long),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        (Backend.BOOK_KEEPING, BookKeeping),
        (Backend.OPACUS, OpacusHooks),
        (Backend.FUNCTIONAL, Functional),
    ],
)
def test_the_backend_that_was_asked_for(backend, kind, caplog):
    assert isinstance(chosen(nn.Linear(4, 3), backend), kind)
    assert caplog.messages == []


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("model", [Tied(), Bilinear()])
def test_models_beyond_the_engine_are_served_right_and_it_says_so(model, caplog):
    with caplog.at_level(logging.WARNING):
        engine = chosen(model, Backend.BOOK_KEEPING)
    assert isinstance(engine, Functional)
    reason = "the layer" if isinstance(model, Tied) else "'mix' (Bilinear)"
    assert reason in caplog.messages[-1]
    assert "whole model" in caplog.messages[-1]
    inputs, targets = normal(4, 4, seed=2), torch.arange(4) % 3
    weights = torch.linspace(0.2, 1, 4)
    sums = engine.weighted_sum(
        inputs, targets, real=4, copies=1, weigh=lambda found: weights.expand_as(found)
    )
    expected = model_gradients(model, inputs, targets)
    assert_same_sums(sums, [torch.tensordot(weights.double(), g, 1) for g in expected])


@pytest.mark.parametrize("backend", [Backend.OPACUS, Backend.FUNCTIONAL])
def test_plain_backends_compute_in_fp32_alone(backend):
    with pytest.raises(ParameterError, match=f"backend {backend} computes"):
        chosen(nn.Linear(4, 3), backend, Precision.BF16)


def test_a_model_beyond_the_engine_has_no_low_precision():
    with pytest.raises(ParameterError, match=r"bf16 needs .*fp32"):
        chosen(Tied(), Backend.BOOK_KEEPING, Precision.BF16)


@pytest.mark.parametrize("backend", list(Backend))
def test_a_model_that_mixes_is_refused_by_every_backend(backend):
    with pytest.raises(ParameterError, match=r"'1' \(BatchNorm1d\) mixes"):
        chosen(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), backend)
