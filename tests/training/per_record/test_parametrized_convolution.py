from __future__ import annotations

import numpy as np
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from dpal.models.equivariant.convolution import SteerableConv2d
from dpal.models.equivariant.groups import D2, D4
from dpal.models.layers import StandardisedConv2d
from dpal.randomness import secure
from dpal.training.dp_sgd import PrivateGradient
from dpal.training.per_record.layer_rule import (
    INSTANTIATE,
)
from dpal.training.per_record.parametrized_convolution import FilterRule
from tests.training.per_record.oracle import (
    assert_rule_is_right,
    copies,
    few,
    freeze,
    normal,
    seeds,
)


@given(
    kernel=st.integers(1, 3), stride=st.integers(1, 2), padding=st.integers(0, 2),
    groups=st.integers(1, 2), bias=st.booleans(), gain=st.booleans(), views=copies, seed=seeds,
    frozen=st.sampled_from([None, None, "weight", "gain", "bias"]),
)  # fmt: skip
@few
def test_standardised(kernel, stride, padding, groups, bias, gain, views, seed, frozen):
    torch.manual_seed(0)
    assume(frozen != "weight" or bias or gain)
    layer = StandardisedConv2d(
        3 * groups, 2 * groups, kernel, stride=stride, padding=padding, groups=groups, bias=bias,
        gain=gain,
    )  # fmt: skip
    freeze(layer, frozen)
    inputs = normal(2 * views, 3 * groups, 5, 4, seed=seed)
    assert_rule_is_right(FilterRule(layer), inputs, records=2, seed=seed, forced=(INSTANTIATE,))


@given(
    group=st.sampled_from([D2, D4]), regular=st.booleans(), bias=st.booleans(),
    views=copies, seed=seeds,
)  # fmt: skip
@few
def test_steerable(group, regular, bias, views, seed):
    """Few coefficients make the filter: its gradient is longer than theirs."""
    torch.manual_seed(0)
    layer = SteerableConv2d(2, 1, group=group, from_regular=regular, bias=bias)
    channels = layer.filters(dict(layer.named_parameters()))[0].shape[1]
    inputs = normal(2 * views, channels, 4, 5, seed=seed)
    assert_rule_is_right(FilterRule(layer), inputs, records=2, seed=seed, forced=(INSTANTIATE,))


def test_what_is_left_of_a_gradient_that_the_map_takes_off_stays_within_the_bound():
    """Equal channels: a filter's mean is all that such a record moves, and it has none."""
    torch.manual_seed(0)
    convolution = StandardisedConv2d(256, 256, 1, bias=False, gain=False)
    head = nn.Linear(256 * 16, 4).requires_grad_(False)
    head.weight.mul_(1e4)
    model = nn.Sequential(convolution, nn.Flatten(), head)
    gradient = PrivateGradient(
        model, max_grad_norm=1e-3, noise_multiplier=1.0, expected_batch_size=1,
        physical_batch=64, rng=secure(),
    )  # fmt: skip
    for value in torch.linspace(-10, 10, 9):
        total = gradient.clipped_sum(torch.full((1, 256, 4, 4), float(value)), torch.tensor([1]))
        assert np.linalg.norm(total) <= 1e-3
