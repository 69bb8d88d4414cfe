from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from dpal.models.build_model import build_model
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

NAME = "resnet50"


def test_parameters_are_as_many_as_published():
    # Torchvision prints 25_557_032 for ResNet-50: batch normalisation learns as many.
    large = spec_of(NAME, (3, 224, 224), classes=1000)
    assert count_of(large) == 25_557_032
    grey = spec_of(NAME, (1, 224, 224), classes=1000)
    assert count_of(large) - count_of(grey) == 2 * 64 * 7 * 7
    small = spec_of(NAME, (3, 32, 32), classes=1000)
    assert count_of(large) - count_of(small) == 3 * 64 * (7 * 7 - 3 * 3)


@pytest.mark.parametrize(("shape", "last"), [((3, 224, 224), (7, 7)), ((1, 64, 64), (8, 8))])
def test_small_images_are_not_shrunk_by_the_stem(shape, last):
    model: Any = shapes_of(spec_of(NAME, shape, classes=5))
    inputs = torch.zeros(2, *shape, device="meta")
    assert model(inputs).shape == (2, 5)
    assert model.blocks(model.stem(inputs)).shape == (2, 2048, *last)


def by_hand(state, signal):
    """Bottlenecks, one after the other."""

    def convolve(signal, name, stride=1):
        weight = state[f"{name}.weight"]
        return functional.conv2d(signal, weight, None, stride, weight.shape[2] // 2)

    def norm(signal, name):
        return functional.group_norm(signal, 32, state[f"{name}.weight"], state[f"{name}.bias"])

    def stem(signal):
        small = max(signal.shape[2:]) <= 64
        signal = norm(convolve(signal, "stem.0", 1 if small else 2), "stem.1").relu()
        return signal if small else functional.max_pool2d(signal, 3, 2, 1)

    signal = stem(signal)
    for index in range(16):
        block, stride = f"blocks.{index}", 2 if index in (3, 7, 13) else 1
        inner = norm(convolve(signal, f"{block}.residual.0"), f"{block}.residual.1").relu()
        inner = convolve(inner, f"{block}.residual.3", stride)
        inner = convolve(norm(inner, f"{block}.residual.4").relu(), f"{block}.residual.6")
        if index in (0, 3, 7, 13):
            signal = norm(convolve(signal, f"{block}.skip.0", stride), f"{block}.skip.1")
        signal = (signal + norm(inner, f"{block}.residual.7")).relu()
    pooled = signal.mean((2, 3))
    return functional.linear(pooled, state["classify.weight"], state["classify.bias"])


@pytest.mark.parametrize("shape", [(1, 66, 33), pytest.param((3, 16, 16), marks=pytest.mark.slow)])
def test_logits_follow_the_paper(shape):
    assert_follows(by_hand, spec_of(NAME, shape))


@pytest.mark.slow
def test_every_record_is_on_its_own_and_every_parameter_trains():
    model, inputs = build_model(spec_of(NAME)), images(2)
    assert_records_apart(model, inputs)
    assert_all_train(model, inputs)
    assert_mc_dropout(model, inputs)


@pytest.mark.slow
def test_units_drop_before_the_classifier():
    assert_own_dropout(NAME)
