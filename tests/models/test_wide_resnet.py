from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from dpal.models.build_model import build_model
from dpal.models.parametrized_convolution import FilterConv2d
from tests.models.checks import (
    assert_all_train,
    assert_follows,
    assert_mc_dropout,
    assert_own_dropout,
    assert_records_apart,
    count_of,
    images,
    shapes_of,
    spec_of,
)


def formula(channels: int, classes: int) -> int:
    """Weights, gains and biases of convolutions; scales and shifts of normalisations."""

    def convolution(wide_in, wide_out, kernel):
        return wide_in * wide_out * kernel**2 + 2 * wide_out

    def normalised(wide_in, wide_out, kernel):
        return 2 * wide_in + convolution(wide_in, wide_out, kernel)

    total = convolution(channels, 16, 3)
    for wide_in, wide in ((16, 64), (64, 128), (128, 256)):
        total += normalised(wide_in, wide, 1) + normalised(wide_in, wide, 3)
        total += 3 * normalised(wide, wide, 3)
    return total + 2 * 256 + 256 * classes + classes


@pytest.mark.parametrize(("channels", "classes"), [(3, 10), (1, 4)])
def test_parameters_follow_the_formula(channels, classes):
    count = count_of(spec_of("wide_resnet16_4", (channels, 32, 32), classes=classes))
    assert count == formula(channels, classes)
    assert formula(3, 10) == 2_753_818  # as the class says


def by_hand(state, signal):
    """Activation, normalisation, convolution; block by block."""

    def convolve(signal, name, stride=1):
        weight = state[f"{name}.weight"]
        centred = weight - weight.mean((1, 2, 3), keepdim=True)
        filters = centred / centred.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        filters = filters * state[f"{name}.gain"].view(-1, 1, 1, 1)
        around = weight.shape[2] // 2
        return functional.conv2d(signal, filters, state[f"{name}.bias"], stride, around)

    def norm(signal, name):
        return functional.group_norm(signal, 16, state[f"{name}.weight"], state[f"{name}.bias"])

    signal = convolve(signal, "stem")
    for index in range(6):
        block, stride = f"blocks.{index}", 2 if index in (2, 4) else 1
        inner = convolve(norm(signal.relu(), f"{block}.residual.1"), f"{block}.residual.2", stride)
        inner = convolve(norm(inner.relu(), f"{block}.residual.4"), f"{block}.residual.5")
        if index % 2 == 0:
            signal = convolve(norm(signal.relu(), f"{block}.skip.1"), f"{block}.skip.2", stride)
        signal = signal + inner
    pooled = norm(signal.relu(), "norm").mean((2, 3))
    return functional.linear(pooled, state["classify.weight"], state["classify.bias"])


def test_logits_follow_the_published_order():
    assert_follows(by_hand, spec_of("wide_resnet16_4", (3, 16, 20)))


def test_sides_halve_twice():
    model: Any = shapes_of(spec_of("wide_resnet16_4", (3, 32, 32)))
    inputs = torch.zeros(2, 3, 32, 32, device="meta")
    assert model.blocks(model.stem(inputs)).shape == (2, 256, 8, 8)
    assert model(inputs).shape == (2, 10)
    convolutions = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert convolutions == []  # all of them standardised
    assert sum(isinstance(layer, FilterConv2d) for layer in model.modules()) == 1 + 6 * 2 + 3


def test_every_record_is_on_its_own_and_every_parameter_trains():
    model, inputs = build_model(spec_of("wide_resnet16_4")), images(3)
    assert_records_apart(model, inputs)
    assert_all_train(model, inputs)
    assert_mc_dropout(model, inputs)


def test_units_drop_before_the_classifier():
    assert_own_dropout("wide_resnet16_4")
