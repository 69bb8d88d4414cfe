"""Many small models trained at once become what each becomes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.normalisation import Normalisation
from dpal.models.spec import ModelSpec
from dpal.planning.public_selection import FineTuning
from dpal.training.plain_training import fine_tune
from dpal.training.side_by_side import fine_tune_together, is_small_head
from tests.variants import quick_and_slow

WIDTH, CLASSES = 12, 4
TRAINING = FineTuning(
    optimizer="sgd", learning_rate=0.1, epochs=6, batch_size=16, weight_decay=1e-4, shift=0, seed=0
)
SPEC = ModelSpec(name="logistic", input_shape=(WIDTH,), classes=CLASSES)
Records = tuple[list[Tensor], list[Tensor]]


def records(sizes: Sequence[int], task: Task = Task.SINGLE_LABEL) -> Records:
    draw = torch.Generator().manual_seed(3)
    inputs = [torch.randn(size, WIDTH, generator=draw) for size in sizes]
    truth = torch.randn(WIDTH, CLASSES, generator=draw)
    scores = [own @ truth for own in inputs]
    if task is Task.SINGLE_LABEL:
        return inputs, [own.argmax(dim=1) for own in scores]
    labels = [(own > 0).to(torch.int8) for own in scores]
    labels[0][0, 0] = -1  # not known
    return inputs, labels


def models_of(spec: ModelSpec, count: int) -> list[nn.Module]:
    return [build_model(replace(spec, seed=seed)) for seed in range(count)]


def together(spec: ModelSpec, training: FineTuning, of: Records) -> list[dict[str, Tensor]]:
    inputs, labels = of
    models = models_of(spec, len(inputs))
    trainings = [replace(training, seed=10 + number) for number in range(len(inputs))]
    fine_tune_together(models, inputs, labels, trainings, task=spec.task)
    assert not any(model.training for model in models)
    return [dict(model.state_dict()) for model in models]


def alone(spec: ModelSpec, training: FineTuning, of: Records) -> list[dict[str, Tensor]]:
    models = models_of(spec, len(of[0]))
    for number, (model, inputs, labels) in enumerate(zip(models, *of, strict=True)):
        fine_tune(model, inputs, labels, replace(training, seed=10 + number), task=spec.task)
    return [dict(model.state_dict()) for model in models]


SPECS = {
    "logistic": SPEC,
    "several labels": replace(SPEC, task=Task.MULTI_LABEL),
    "mlp": replace(SPEC, name="mlp", hidden=(8, 8)),
    "relu": replace(SPEC, name="mlp", hidden=(8,), activation="relu"),
    "normalised": replace(
        SPEC, normalisation=Normalisation(mean=(0.5,) * WIDTH, std=(2.0,) * WIDTH)
    ),
}


SIZES = [(40,) * 5, (33, 48, 40, 47), (7,)]


@pytest.mark.parametrize(
    ("name", "optimizer", "sizes"),
    quick_and_slow(
        [*product(SPECS, ["sgd"], SIZES[1:2]), *product(["mlp"], ["adam"], SIZES)],
        product(SPECS, ["sgd", "adam"], SIZES),
    ),
)
def test_side_by_side_is_as_one_after_the_other(name, optimizer, sizes):
    """Sizes with as many steps; the last batch of an epoch is shorter for some."""
    spec, training = SPECS[name], replace(TRAINING, optimizer=optimizer)
    of = records(sizes, spec.task)
    for own, other in zip(together(spec, training, of), alone(spec, training, of), strict=True):
        assert own.keys() == other.keys()
        for key, weights in own.items():
            torch.testing.assert_close(weights, other[key], rtol=1e-5, atol=1e-5)


def test_pixels_and_halves_are_scaled_as_they_are_alone():
    inputs, labels = records([20, 20])
    for kind in (torch.float16, torch.uint8, torch.uint16):
        stored = [(100 * own.abs()).to(torch.uint8).to(kind) for own in inputs]
        both = (together(SPEC, TRAINING, (stored, labels)), alone(SPEC, TRAINING, (stored, labels)))
        for own, other in zip(*both, strict=True):
            for key, weights in own.items():
                torch.testing.assert_close(weights, other[key], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_record_moves_its_own_model_and_no_bit_of_another(optimizer):
    """The privacy of votes: one record, one ballot."""
    training = replace(TRAINING, optimizer=optimizer)
    inputs, labels = records([33, 48, 40, 47])
    before = together(SPEC, training, (inputs, labels))
    inputs[2][5], labels[2][5] = 1e4, (labels[2][5] + 1) % CLASSES
    after = together(SPEC, training, (inputs, labels))
    for number, (own, other) in enumerate(zip(before, after, strict=True)):
        same = all(torch.equal(own[key], other[key]) for key in own)
        assert same is (number != 2)


def test_the_same_models_together_become_the_same_to_the_last_bit():
    of = records([33, 48, 40])
    first, again = (together(SPEC, replace(TRAINING, optimizer="adam"), of) for _ in range(2))
    for own, other in zip(first, again, strict=True):
        assert all(torch.equal(own[key], other[key]) for key in own)


def test_each_step_is_told_once_for_all():
    steps: list[int] = []
    inputs, labels = records([40, 40, 40])
    fine_tune_together(
        models_of(SPEC, 3), inputs, labels, [TRAINING] * 3, task=SPEC.task,
        on_step=lambda: steps.append(1),
    )  # fmt: skip
    assert len(steps) == 3 * TRAINING.epochs


def test_one_that_diverges_is_kept_and_moves_no_bit_of_another():
    """Whether a model of private records diverged is told by nothing that it does."""
    inputs, labels = records([40, 40])
    before = together(SPEC, TRAINING, (inputs, labels))
    inputs[1][3] = 1e30
    after = together(SPEC, TRAINING, (inputs, labels))
    assert all(torch.equal(before[0][key], after[0][key]) for key in before[0])
    assert not all(weights.isfinite().all() for weights in after[1].values())


@pytest.mark.parametrize("sizes", [[40, 49], [40, 0]], ids=["more steps", "no record"])
def test_models_that_do_not_fit_together_are_refused(sizes):
    with pytest.raises(ParameterError):
        together(SPEC, TRAINING, records(sizes))


def test_which_models_can_be_trained_side_by_side():
    pictures = replace(SPEC, input_shape=(1, 28, 28))
    small = {name: is_small_head(build_model(spec), TRAINING) for name, spec in SPECS.items()}
    assert all(small.values()), small
    assert is_small_head(build_model(pictures), TRAINING)
    assert not is_small_head(build_model(pictures), replace(TRAINING, shift=2))
    assert not is_small_head(build_model(replace(pictures, name="tutorial_cnn")), TRAINING)
    in_part = replace(SPECS["mlp"], trainable=("5",))
    assert not is_small_head(build_model(in_part), TRAINING)
