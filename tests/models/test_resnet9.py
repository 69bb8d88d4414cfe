from __future__ import annotations

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


@pytest.mark.parametrize(
    ("shape", "classes", "count"),
    # Counted on the published code, at its three settings.
    [((3, 32, 32), 10, 2_448_714), ((3, 128, 128), 8, 2_446_664), ((1, 128, 128), 4, 2_441_412)],
)
def test_parameters_are_those_of_the_paper(shape, classes, count):
    spec = spec_of("resnet9", shape, classes=classes)
    assert count_of(spec) == count
    assert shapes_of(spec)(torch.zeros(2, *shape, device="meta")).shape == (2, classes)


def by_hand(state, inputs):
    """The published table, line by line, on the numbers of a state."""

    def norm(signal, name):
        return functional.group_norm(signal, 32, state[f"{name}.weight"], state[f"{name}.bias"])

    def block(signal, name, pool=False):
        signal = functional.conv2d(signal, state[f"{name}.conv.weight"], padding=1)
        signal = functional.mish(norm(signal, f"{name}.norm"))
        return functional.max_pool2d(signal, 2) if pool else signal

    signal = block(block(inputs, "conv1"), "conv2", pool=True)
    signal = signal + block(block(signal, "residual1.0"), "residual1.1")
    signal = block(norm(signal, "scale_norm1"), "conv3", pool=True)
    signal = block(signal, "conv4", pool=True)
    signal = signal + block(block(signal, "residual2.0"), "residual2.1")
    pooled = functional.adaptive_max_pool2d(norm(signal, "scale_norm2"), 2).flatten(1)
    return functional.linear(pooled, state["classify.weight"], state["classify.bias"])


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 40, 24)])
def test_logits_follow_the_published_table(shape):
    assert_follows(by_hand, spec_of("resnet9", shape))


def test_every_record_is_on_its_own_and_every_parameter_trains():
    model, inputs = build_model(spec_of("resnet9")), images(3)
    assert_records_apart(model, inputs)
    assert_all_train(model, inputs)
    assert_mc_dropout(model, inputs)
    assert_records_apart(build_model(spec_of("resnet9", dropout=0.3)), inputs)


def test_units_drop_after_the_four_plain_convolutions():
    assert_own_dropout("resnet9")
    model = build_model(spec_of("resnet9", dropout=0.3))
    found = [name for name, part in model.named_modules() if isinstance(part, torch.nn.Dropout)]
    assert found == [f"conv{index}.dropout" for index in (1, 2, 3, 4)]
