"""What training does on an accelerator: the same sums, the same bound, the same model.

All of it is skipped where there is none. A machine with one needs no Prefect, MLflow or DVC for
these, but dpal itself (`pip install --no-deps .`):
`python -m pytest --noconftest tests/training/test_accelerator.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dpal.data.labeled_records import LabeledSet
from dpal.labels import Task
from dpal.models.architectures import ARCHITECTURES
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.training_recipe import Augmentation, Clipping, ClippingKind, Precision, Recipe
from dpal.randomness import secure
from dpal.simulation.seeded_bits import SeededBits
from dpal.training.arithmetic import exact_arithmetic
from dpal.training.backend_names import Backend
from dpal.training.checkpoints import pack_state, restore_training
from dpal.training.dp_sgd import PrivateGradient
from dpal.training.losses import per_record_loss
from dpal.training.noise_ahead import NoiseAhead, noisy_sum_from
from dpal.training.optimizers import build_optimizer
from dpal.training.per_record.backend import stretches_by_size
from dpal.training.per_record.book_keeping import BookKeeping
from dpal.training.predictions import probabilities
from dpal.training.train_phase import train_dp_sgd
from tests.training.crews import phase
from tests.training.per_record.oracle import (
    assert_same_norms,
    assert_same_sums,
    model_gradients,
    normal,
    norms_of,
)
from tests.training.per_record.test_models import build

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator here")
DEVICE = "cuda"
C = 0.3
IMAGE = (3, 32, 32)
every_model = pytest.mark.parametrize("name", list(ARCHITECTURES))
every_backend = pytest.mark.parametrize("backend", list(Backend))


@pytest.fixture(autouse=True)
def _as_trained() -> Iterator[None]:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    exact_arithmetic()
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def images(count: int) -> tuple[Tensor, Tensor]:
    return normal(count, *IMAGE, seed=1), torch.arange(count) % 3


def network(name: str = "resnet9") -> nn.Module:
    torch.manual_seed(0)
    return build_model(ModelSpec(name=name, input_shape=IMAGE, classes=3)).to(DEVICE)


def private(model: nn.Module, **options) -> PrivateGradient:
    values = {"noise_multiplier": 1.0, "expected_batch_size": 8.0, "physical_batch": 8}
    return PrivateGradient(model, max_grad_norm=C, **{"rng": secure(), **values, **options})


def clipped_sum(model: nn.Module, inputs: Tensor, targets: Tensor, **options) -> np.ndarray:
    with closing(private(model, **options)) as gradient:
        return gradient.clipped_sum(inputs, targets)


def clipped_to(bound: float, squared: Tensor) -> Tensor:
    return (bound / squared.sqrt()).clamp(max=1.0)


@every_model
def test_every_models_norms_and_sums_beside_autograd_on_a_cpu(name, tmp_path):
    """Records one by one, and averaged by group, in float64 on the CPU beside float32 here."""
    model, inputs = build(name, tmp_path)
    inputs = torch.cat([inputs, inputs + 1 if inputs.is_floating_point() else inputs])[:3]
    targets, sizes = torch.tensor([0, 2, 1]), (1, 2)
    singles = model_gradients(model, inputs, targets)
    means = [
        torch.stack([part.mean(dim=0) for part in torch.split(each, list(sizes))])
        for each in singles
    ]
    engine = BookKeeping(
        model.to(DEVICE), loss=per_record_loss(Task.SINGLE_LABEL), groups=[0] * len(singles)
    )
    for gradients, real, copies in ((singles, 3, 1), (means, 2, stretches_by_size(sizes))):
        norms = norms_of(gradients)
        bound = float(norms.mean())
        found = engine.squared_norms(inputs.to(DEVICE), targets.to(DEVICE), copies=copies)[0].sqrt()
        assert_same_norms(found.cpu(), norms, name)
        sums = engine.weighted_sum(
            inputs.to(DEVICE), targets.to(DEVICE), real=real, copies=copies,
            weigh=partial(clipped_to, bound),
        )  # fmt: skip
        weights = (bound / norms).clamp(max=1.0)
        wanted = [torch.tensordot(weights, one, 1) for one in gradients]
        assert_same_sums([one.cpu() for one in sums], wanted)


@every_backend
def test_every_backend_in_parts_of_any_size(backend):
    inputs, targets = images(20)
    model = network("tutorial_cnn")
    expected = clipped_sum(network("tutorial_cnn").cpu(), inputs, targets)
    for physical in (5, 8, 64):
        found = clipped_sum(model, inputs, targets, backend=backend, physical_batch=physical)
        assert np.linalg.norm(found - expected) <= 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", ["tutorial_cnn", "resnet9", "equivariant_resnet9"])
@pytest.mark.parametrize("precision", list(Precision))
def test_nobody_contributes_more_than_the_bound(precision, name):
    """Products of ten and of eight bits too: what `Precision.slack` leaves room for."""
    inputs, targets = images(12)
    recipe = Recipe(precision=precision, augmentation=Augmentation(multiplicity=2, flip=True))
    with closing(private(network(name), recipe=recipe, physical_batch=64)) as gradient:
        together = gradient.clipped_sum(3 * inputs, targets)
        norms = [
            float(np.linalg.norm(gradient.clipped_sum(*part)))
            for part in zip((3 * inputs).split(1), targets.split(1), strict=True)
        ]
    assert np.isfinite(together).all()
    assert (1 - 2 * precision.slack) * C <= max(norms) <= C


@every_backend
@pytest.mark.parametrize("kind", list(ClippingKind))
def test_noise_comes_from_the_secure_stream_and_has_its_width(backend, kind):
    """A step without records is noise alone. Five standard errors: 1e-6 of chance a figure."""
    model = network("tutorial_cnn")
    recipe = Recipe(clipping=Clipping(kind=kind, count_noise=10.0))
    inputs, targets = images(1)
    before = generators()
    with closing(private(model, recipe=recipe, backend=backend)) as gradient:
        gradient.write(inputs[:0], targets[:0])
    assert torch.equal(generators(), before)
    drawn = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert drawn.is_cuda
    wanted, count = C / 8.0, drawn.numel()
    room = 5 / (2 * count) ** 0.5  # five standard errors of a deviation
    widest = 1.01 if kind is ClippingKind.ADAPTIVE else 1.0  # pays for its counts
    assert wanted * (1 - room) <= float(drawn.std()) <= wanted * widest * (1 + room)
    assert abs(float(drawn.mean())) <= 5 * wanted / count**0.5


def test_noise_is_drawn_beside_the_accelerator_and_added_there_as_on_a_cpu():
    """The same whole numbers and the same sum give the same bits on both."""
    total = torch.from_numpy(np.random.default_rng(1).normal(0, 3, 100_000))
    with closing(NoiseAhead(100_000)) as ahead:
        ahead.begin()
        steps = ahead.take()
    for scale in (1e-6, 0.37, 5e4):
        there = noisy_sum_from(total.to(DEVICE), scale, steps)
        assert torch.equal(there.cpu(), noisy_sum_from(total, scale, steps))
    with closing(private(network("tutorial_cnn"))) as gradient:
        assert gradient._ahead is not None
    with closing(private(network("tutorial_cnn"), rng=SeededBits(1, "noise"))) as gradient:
        assert gradient._ahead is None  # other streams would not repeat


def generators() -> Tensor:
    """What torch's own generators would draw next, here and on the accelerator."""
    return torch.cat([torch.get_rng_state(), *torch.cuda.get_rng_state_all()])


def labeled(count: int = 64) -> LabeledSet:
    inputs, targets = images(count)
    return LabeledSet(inputs=inputs, labels=targets, cohorts=np.zeros(count, dtype=np.int16))


@pytest.mark.parametrize("other", ["cpu", DEVICE])
def test_training_goes_on_from_a_checkpoint_of_either_device(other, tmp_path):
    """Two steps there and two here are four here: everybody in every batch, hardly any noise."""
    spec = OptimizerSpec(name="adam", learning_rate=0.001, momentum=0.0, max_grad_norm=1.0)
    four = phase(4, noise=1e-9, old=1.0, new=1.0)

    def train(device: str, *, until: int, done: int = 0) -> np.ndarray:
        model = network("tutorial_cnn").to(device)
        optimizer = build_optimizer(spec, model.parameters())
        if done:
            restore_training(tmp_path / "state", model, optimizer)
        part = replace(four, training=replace(four.training, steps=until))
        train_dp_sgd(model, optimizer, labeled(), part, spec, physical_batch=64,
                     rng=secure(), done=done)  # fmt: skip
        (tmp_path / "state").write_bytes(pack_state(model, optimizer))
        return probabilities(model, images(16)[0], physical_batch=16)

    at_once = train(DEVICE, until=4)
    half = train(other, until=2)
    assert not np.allclose(half, at_once, atol=1e-3)
    assert np.allclose(train(DEVICE, until=4, done=2), at_once, atol=1e-4)


@every_model
def test_predictions_are_those_of_a_cpu(name, tmp_path):
    model, inputs = build(name, tmp_path)
    here = probabilities(model, inputs, physical_batch=32)
    there = probabilities(model.to(DEVICE), inputs, physical_batch=32)
    assert np.allclose(here, there, atol=1e-4)
