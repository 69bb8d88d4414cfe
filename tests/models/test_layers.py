from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from dpal.errors import ParameterError
from dpal.models.layers import (
    SamePad2d,
    ScalarGain,
    ScaledGelu,
    StandardisedConv2d,
    dropout,
    image_shape,
)
from dpal.models.spec import ModelSpec


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def doubled(*arguments, **options) -> StandardisedConv2d:
    """A layer in float64 whose gain and bias are not where they begin."""
    layer = StandardisedConv2d(*arguments, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(1)))
    return layer


def plain_filter(weight: np.ndarray, gain: np.ndarray | None) -> np.ndarray:
    """Filter by filter: subtract the mean, divide by standard deviation and root of fan-in."""
    made = np.empty_like(weight)
    for index, one in enumerate(weight):
        made[index] = (one - one.mean()) / (one.std() * math.sqrt(one.size))
        made[index] *= 1 if gain is None else gain[index]
    return made


@pytest.mark.parametrize("gain", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kernel", "options"),
    [(1, {}), (3, {"padding": 1}), (3, {"stride": 2, "groups": 2}), (2, {"groups": 4})],
)
def test_a_convolution_with_standardised_filters(kernel, options, gain, bias):
    layer = doubled(4, 8, kernel, gain=gain, bias=bias, **options)
    state = {name: value.numpy() for name, value in layer.state_dict().items()}
    assert set(state) == {"weight", *["gain"] * gain, *["bias"] * bias}
    inputs = torch.randn(2, 4, 6, 5, generator=generator(2), dtype=torch.float64)
    expected = functional.conv2d(
        inputs,
        torch.from_numpy(plain_filter(state["weight"], state.get("gain"))),
        layer.get_parameter("bias") if bias else None,
        **options,
    )
    assert torch.allclose(layer(inputs), expected, rtol=0, atol=1e-12)


def test_level_and_size_of_weights_do_not_matter():
    layer = doubled(3, 5, 3)
    inputs = torch.randn(2, 3, 6, 6, generator=generator(), dtype=torch.float64)
    before = layer(inputs)
    with torch.no_grad():
        layer.weight.mul_(7).add_(3)
    assert torch.allclose(layer(inputs), before, atol=1e-12)
    (layer(inputs) ** 2).sum().backward()
    gradient = layer.weight.grad
    assert gradient is not None
    along = (gradient * (layer.weight - 3)).sum((1, 2, 3))
    assert gradient.abs().max() > 1e-3
    assert gradient.sum((1, 2, 3)).abs().max() < 1e-9
    assert along.abs().max() < 1e-9


def test_equal_weights_give_a_zero_filter_and_finite_gradients():
    layer = StandardisedConv2d(3, 2, 3)
    nn.init.constant_(layer.weight, 0.25)
    outputs = layer(torch.ones(1, 3, 5, 5))
    assert torch.allclose(outputs, torch.zeros_like(outputs), atol=1e-6)
    outputs.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.isfinite().all()


def test_signals_keep_their_variance():
    """400,000 outputs of 64 filters; filters have norm 1, so only sampling moves the variance:
    about 0.0025 a standard deviation, and a scale without the fan-in would be 24 times off."""
    layer = StandardisedConv2d(6, 64, 2, bias=False)
    layer.draw_weights(generator(3))
    outputs = layer(torch.randn(100, 6, 9, 9, generator=generator(4)))
    assert outputs.var().item() == pytest.approx(1, abs=0.03)


def test_the_scaled_gelu_keeps_variance():
    """Gauss-Hermite quadrature of the variance under a standard normal input."""
    points, weights = np.polynomial.hermite_e.hermegauss(100)
    values = ScaledGelu()(torch.from_numpy(points)).numpy()
    weights = weights / weights.sum()
    variance = weights @ values**2 - (weights @ values) ** 2
    assert variance == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("side", range(5, 13))
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_padding_gives_every_stride_its_output(side, stride):
    padded = SamePad2d(3, stride)(torch.ones(1, 2, side, 8))
    assert functional.max_pool2d(padded, 3, stride).shape[2] == math.ceil(side / stride)
    rows = padded[0, 0, :, 4]
    before, after = rows.argmax().item(), rows.flip(0).argmax().item()
    assert before + side + after == len(rows)
    assert after - before in (0, 1)


def test_a_gain_is_one_number():
    layer, inputs = ScalarGain(), torch.randn(3, 4, generator=generator())
    outputs = layer(inputs)
    assert torch.equal(outputs, torch.zeros(3, 4))
    outputs.sum().backward()
    assert layer.gain.grad is not None
    assert layer.gain.grad.item() == pytest.approx(inputs.sum().item(), rel=1e-5)


def test_dropout_without_a_chance_is_none_at_all():
    assert isinstance(dropout(0.0), nn.Identity)
    assert dropout(0.25).p == 0.25


@pytest.mark.parametrize("shape", [(8,), (3, 15, 32), (3, 32, 15), (2, 3, 32, 32)])
def test_records_that_are_no_large_enough_images_are_refused(shape):
    spec = ModelSpec(name="resnet9", input_shape=shape, classes=3)
    with pytest.raises(ParameterError, match=r"resnet9 .*16x16"):
        image_shape(spec, smallest=16)
