"""Plain training on public records, rotation pretraining, and embeddings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.public_selection import FineTuning
from dpal.training.embeddings import embed, embedding_width, last_layer
from dpal.training.plain_training import fine_tune, training_steps
from dpal.training.rotation_pretraining import pretrain, rotate_four_ways

SPEC = ModelSpec(name="mlp", input_shape=(6,), classes=3, hidden=(8,))
IMAGES = ModelSpec(name="tutorial_cnn", input_shape=(1, 16, 16), classes=3)
TRAINING = FineTuning(
    optimizer="adam", learning_rate=0.01, epochs=30, batch_size=16, weight_decay=0.0, shift=0
)


def blobs(count: int = 90) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 3
    inputs = 2 * nn.functional.one_hot(labels, 6).float()
    return inputs + 0.3 * torch.randn(count, 6, generator=generator), labels


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()])


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_it_learns_and_repeats(optimizer):
    inputs, labels = blobs()
    training = replace(TRAINING, optimizer=optimizer)
    steps: list[int] = []
    models = [build_model(SPEC) for _ in range(2)]
    for model in models:
        steps.clear()
        fine_tune(
            model, inputs, labels, training, task=Task.SINGLE_LABEL, on_step=lambda: steps.append(1)
        )
    assert (models[0](inputs).argmax(dim=1) == labels).float().mean() > 0.95
    assert torch.equal(weights(models[0]), weights(models[1]))  # a crash loses nothing but time
    assert len(steps) == training_steps(training, 90) == 180
    other = build_model(SPEC)
    fine_tune(other, inputs, labels, replace(training, seed=1), task=Task.SINGLE_LABEL)
    assert not torch.equal(weights(models[0]), weights(other))


def test_several_labels_and_views():
    inputs = torch.randint(0, 255, (40, 1, 16, 16), dtype=torch.uint8)
    labels = (torch.rand(40, 3) > 0.5).to(torch.int8)
    model = build_model(replace(IMAGES, task=Task.MULTI_LABEL))
    before = weights(model)
    training = replace(TRAINING, epochs=2, shift=1)
    fine_tune(model, inputs, labels, training, task=Task.MULTI_LABEL)
    assert not torch.equal(before, weights(model))
    with pytest.raises(ParameterError, match=r"augmentation\.shift"):
        fine_tune(build_model(SPEC), *blobs(), training, task=Task.SINGLE_LABEL)


def test_what_diverges_is_said_and_not_kept():
    hot = replace(TRAINING, optimizer="sgd", learning_rate=1e38, epochs=3)
    with pytest.raises(ParameterError, match=r"fine_tuning.learning_rate 1e\+38"):
        fine_tune(
            build_model(replace(SPEC, name="logistic", hidden=())),
            *blobs(),
            hot,
            task=Task.SINGLE_LABEL,
        )
    with pytest.raises(ParameterError, match="labeled public"):
        fine_tune(build_model(SPEC), *blobs(0), TRAINING, task=Task.SINGLE_LABEL)


def test_what_diverges_on_private_records_is_kept():
    hot = replace(TRAINING, optimizer="sgd", learning_rate=1e38, epochs=3)
    model = build_model(replace(SPEC, name="logistic", hidden=()))
    fine_tune(model, *blobs(), hot, task=Task.SINGLE_LABEL, may_diverge=True)
    assert not weights(model).isfinite().all()


def test_embeddings_are_what_the_last_layer_sees():
    model, (inputs, _) = build_model(SPEC), blobs(70)
    embeddings, logits = embed(model, inputs, classes=3, physical_batch=32)
    assert embeddings.shape == (70, embedding_width(model, classes=3)) == (70, 8)
    layer = last_layer(model, classes=3)
    again = embeddings @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    assert again == pytest.approx(logits, abs=1e-5)
    assert logits == pytest.approx(model(inputs).detach().numpy(), abs=1e-5)
    assert not layer._forward_pre_hooks  # nothing stays behind
    with pytest.raises(ParameterError, match="7 outputs"):
        last_layer(model, classes=7)


def test_a_records_embedding_depends_on_it_alone():
    model, (inputs, _) = build_model(SPEC), blobs(64)
    embeddings, _ = embed(model, inputs, classes=3, physical_batch=32)
    inputs[5] = float("nan")
    changed, _ = embed(model, inputs, classes=3, physical_batch=32)
    others = np.arange(64) != 5
    assert (embeddings[others] == changed[others]).all()
    assert np.isnan(changed[5]).all()


def test_turns_are_told_apart_and_the_last_layer_is_fresh():
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 60, (60, 1, 16, 16), dtype=torch.uint8, generator=generator)
    images[:, :, :5] += 180  # bright at the top: which way is up can be learned
    inputs, turns = rotate_four_ways(images)
    assert inputs.shape == (240, 1, 16, 16)
    assert torch.equal(inputs[60], torch.rot90(images[0], 1, dims=(1, 2)))
    assert turns.bincount().tolist() == [60] * 4
    training = replace(TRAINING, epochs=4, learning_rate=1e-3)
    model, fresh = pretrain(IMAGES, images, training), build_model(IMAGES)
    last, first = "classify.weight", "first.weight"
    assert torch.equal(model.state_dict()[last], fresh.state_dict()[last])
    assert not torch.equal(model.state_dict()[first], fresh.state_dict()[first])
    for records in (torch.zeros(2, 1, 16, 20), torch.zeros(2, 6)):
        with pytest.raises(ParameterError, match=r"leave start.rotations out"):
            rotate_four_ways(records)
