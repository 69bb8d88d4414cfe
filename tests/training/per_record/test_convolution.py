from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from dpal.training.per_record.convolution import ConvolutionRule
from dpal.training.per_record.layer_rule import (
    GHOST,
    INSTANTIATE,
    KEEP,
    PIXEL_GRAM,
)
from tests.training.per_record.oracle import (
    assert_rule_is_right,
    copies,
    few,
    freeze,
    normal,
    seeds,
)

PADDINGS = st.one_of(st.integers(0, 3), st.sampled_from(["same", "valid"]))
MODES = st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"])


@st.composite
def layers(draw, dimensions: int) -> nn.Module:
    """Any convolution that its own input can feed; sides of 6 and 7."""
    groups = draw(st.sampled_from([1, 1, 2]))
    padding = draw(PADDINGS)
    options = {
        "stride": 1 if padding == "same" else draw(st.integers(1, 3)),
        "padding": padding,
        "dilation": draw(st.integers(1, 2)),
        "groups": groups,
        "bias": draw(st.booleans()),
        "padding_mode": draw(MODES),
    }
    kernels = st.tuples(*[st.integers(1, 3)] * dimensions)
    maker = {1: nn.Conv1d, 2: nn.Conv2d}[dimensions]
    torch.manual_seed(0)
    channels = groups * draw(st.integers(1, 2))
    layer = maker(channels, groups * draw(st.integers(1, 3)), draw(kernels), **options)
    frozen = draw(st.sampled_from([None, None, "weight", "bias"])) if options["bias"] else None
    return freeze(layer, frozen)


def forced(rule: ConvolutionRule) -> list[str]:
    """All ways that are defined for a layer, however slow."""
    ways = [INSTANTIATE]
    ways += [GHOST] if rule._geometry.groups == 1 else []
    ways += [PIXEL_GRAM] if rule._geometry.keeps_places else []
    return ways


def check(
    layer: nn.Conv1d | nn.Conv2d, sides: tuple[int, ...], *, views: int, seed: int, last=False
) -> None:
    inputs = normal(2 * views, layer.in_channels, *sides, seed=seed)
    if last:
        inputs = inputs.to(memory_format=torch.channels_last)
        # torch declares only the form without a device or a type.
        layer = layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rule = ConvolutionRule.of(layer)
    assert_rule_is_right(rule, inputs, records=2, seed=seed, forced=forced(rule))


@given(layer=layers(2), views=copies, seed=seeds, last=st.booleans())
@few
def test_images(layer, views, seed, last):
    check(layer, (6, 7), views=views, seed=seed, last=last)


@given(layer=layers(1), views=copies, seed=seeds)
@few
def test_sequences(layer, views, seed):
    check(layer, (7,), views=views, seed=seed)


@given(
    kernel=st.integers(1, 4), dilation=st.integers(1, 3), views=copies, flat=st.booleans(),
    seed=seeds,
)  # fmt: skip
@few
def test_what_keeps_its_places(kernel, dilation, views, flat, seed):
    """The pixel Gram way; even kernels keep the size at some dilations, but no pixel's place."""
    reach = dilation * (kernel - 1)
    assume(reach % 2 == 0)
    maker, sides = (nn.Conv1d, (9,)) if flat else (nn.Conv2d, (5, 9))
    torch.manual_seed(0)
    layer = maker(2, 3, kernel, padding=reach // 2, dilation=dilation)
    assert ConvolutionRule.of(layer)._geometry.keeps_places == (kernel % 2 == 1)
    check(layer, sides, views=views, seed=seed)


def offered(layer: nn.Conv1d | nn.Conv2d, *sides: int) -> tuple[str, ...]:
    rule, inputs = ConvolutionRule.of(layer), torch.zeros(16, layer.in_channels, *sides)
    with torch.no_grad():
        return rule.ways(inputs, layer(inputs), 16)


def test_the_ways_that_are_offered_suit_the_shape():
    wide = nn.Conv2d(256, 256, 3, padding=1)
    assert offered(wide, 4, 4) == (PIXEL_GRAM, GHOST)
    assert offered(nn.Conv2d(3, 64, 3, padding=1), 32, 32) == (KEEP,)
    assert offered(nn.Conv2d(256, 256, 3, stride=2, padding=1), 8, 8) == (GHOST,)
    assert INSTANTIATE in offered(nn.Conv2d(128, 256, 3, padding=1), 16, 16)
    assert offered(nn.Conv2d(64, 64, 3, padding=1, groups=64), 8, 8) == (KEEP,)


@pytest.mark.parametrize("scale", [1e-12, 1e5])
def test_scales_far_from_one(scale):
    """Products of Gram matrices over- and underflow long before the gradient does."""
    layer = nn.Conv2d(8, 8, 3, padding=1)
    rule = ConvolutionRule.of(layer)
    inputs, grads = normal(2, 8, 6, 6, seed=1) * scale, normal(2, 8, 6, 6, seed=2) * 1e4
    gradients = rule.per_record(inputs, grads, 2)
    expected = torch.stack([g.double().flatten(1).square().sum(1) for g in gradients.values()])
    for way in (INSTANTIATE, GHOST, PIXEL_GRAM):
        found = rule.squared_norms(inputs, grads, 2, way=way)
        total = (found.value + found.rounding).double()
        assert total.isfinite().all(), way
        assert torch.allclose(total, expected.sum(0), rtol=1e-4), way
        assert math.isfinite(float(found.rounding.sum()))
