"""Every registered model: norms and clipped sums of its records, beside plain autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dpal.labels import Task
from dpal.models.architectures import ARCHITECTURES
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.training.backend_names import Backend
from dpal.training.dp_sgd import PrivateGradient
from dpal.training.losses import per_record_loss
from dpal.training.per_record.book_keeping import BookKeeping
from tests.models import tiny_bert
from tests.training.per_record.oracle import (
    assert_same_norms,
    assert_same_sums,
    model_gradients,
    normal,
    norms_of,
)
from tests.variants import quick_and_slow

SHAPES = {
    "logistic": (5,),
    "mlp": (5,),
    "tutorial_cnn": (1, 16, 16),
    "resnet9": (3, 16, 16),
    "equivariant_resnet9": (3, 16, 16),
    "wide_resnet16_4": (3, 16, 16),
    "resnet50": (3, 32, 32),
    "densenet121": (3, 32, 32),
    "nfnet_f0": (3, 64, 64),
}
HEAVY = {"resnet50", "densenet121", "nfnet_f0"}
# So deep that float32 alone moves their gradients by 1e-3 at this size, in any engine. In
# float64 passes remains what the engine adds, which measures and sums in float32 all the same.
DEEP = {"resnet50", "densenet121"}


def build(name: str, tmp_path) -> tuple[nn.Module, Tensor]:
    if name == "text_classifier":
        everything = ("embeddings", "encoder", "pooler", "classifier")
        folder = tiny_bert.write_folder(tmp_path / "bert")
        return tiny_bert.model_of(folder, trainable=everything), tiny_bert.records(4)
    shape = SHAPES[name]
    spec = ModelSpec(name=name, input_shape=shape, classes=3, hidden=(4,))
    model, inputs = build_model(spec), normal(2 if name in DEEP | HEAVY else 4, *shape, seed=1)
    if name in DEEP:
        model, inputs = model.double(), inputs.double()
    return model, inputs


@pytest.mark.parametrize(
    "name",
    quick_and_slow(
        [name for name in ARCHITECTURES if name not in {*HEAVY, "wide_resnet16_4"}], ARCHITECTURES
    ),
)
def test_norms_and_clipped_sums(name, tmp_path):
    model, inputs = build(name, tmp_path)
    targets = torch.tensor([0, 2, 1, 1])[: len(inputs)]
    gradients = model_gradients(model, inputs, targets)
    norms = norms_of(gradients)
    bound = float(norms.mean())  # some are clipped, and some are not
    engine = BookKeeping(
        model, loss=per_record_loss(Task.SINGLE_LABEL), groups=[0] * len(gradients)
    )
    assert_same_norms(engine.squared_norms(inputs, targets)[0].sqrt(), norms, name)
    sums = engine.weighted_sum(
        inputs, targets, real=len(inputs), copies=1,
        weigh=lambda squared: (bound / squared.sqrt()).clamp(max=1.0),
    )  # fmt: skip
    weights = (bound / norms).clamp(max=1.0)
    assert weights.min() < 1 == weights.max()
    assert_same_sums(sums, [torch.tensordot(weights, one, 1) for one in gradients])
    assert engine.fallbacks == ()


@pytest.mark.parametrize("backend", list(Backend))
@pytest.mark.parametrize(
    "trainable",
    [pytest.param((), marks=pytest.mark.slow), ("scale_norm2", "classify")],
    ids=["all", "parts"],
)
def test_the_layout_of_images_suits_all_backends(backend, trainable, bits):
    """With a frozen start torch's own GroupNorm would crash in channels_last."""
    spec = ModelSpec(name="resnet9", input_shape=(3, 16, 16), classes=3, trainable=trainable)
    write_one(build_model(spec), backend, bits)


def test_filters_that_are_computed_have_no_layout_of_their_own(bits):
    spec = ModelSpec(name="equivariant_resnet9", input_shape=(3, 16, 16), classes=3)
    write_one(build_model(spec), Backend.BOOK_KEEPING, bits)


def write_one(model: nn.Module, backend: Backend, bits) -> None:
    gradient = PrivateGradient(
        model, max_grad_norm=1.0, noise_multiplier=1.0, expected_batch_size=2.0, physical_batch=2,
        rng=bits, backend=backend,
    )  # fmt: skip
    gradient.write(normal(2, 3, 16, 16, seed=1), torch.tensor([0, 1]))
    gradient.close()
    assert all((p.grad is not None) == p.requires_grad for p in model.parameters())
