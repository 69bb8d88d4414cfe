from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from dpal.models.layers import ScalarGain
from dpal.training.per_record.scale_and_shift import ChannelRule, LastAxesRule, ScalarRule
from tests.training.per_record.oracle import (
    NORMS,
    assert_rule_is_right,
    copies,
    few,
    freeze,
    layer_gradients,
    normal,
    norms_of,
    seeds,
)

FROZEN = st.sampled_from([None, None, "weight", "bias"])


def stirred(layer: nn.Module) -> nn.Module:
    """Scale and shift anywhere but at 1 and 0."""
    for number, parameter in enumerate(layer.parameters()):
        parameter.data = normal(*parameter.shape, seed=number)
    return layer


@given(
    groups=st.integers(1, 3), each=st.integers(1, 3), sides=st.sampled_from([(4,), (3, 2), (2, 5)]),
    views=copies, frozen=FROZEN, last=st.booleans(), offset=st.sampled_from([0.0, 30.0]),
    seed=seeds,
)  # fmt: skip
@few
def test_group_norm(groups, each, sides, views, frozen, last, offset, seed):
    channels = groups * each
    rule = ChannelRule(freeze(stirred(nn.GroupNorm(groups, channels)), frozen))
    inputs = normal(2 * views, channels, *sides, seed=seed) + offset
    if last and len(sides) == 2:
        inputs = inputs.to(memory_format=torch.channels_last)
    assert_rule_is_right(rule, inputs, records=2, seed=seed, forced=())


@given(channels=st.integers(1, 4), flat=st.booleans(), views=copies, seed=seeds)
@few
def test_instance_norm(channels, flat, views, seed):
    maker, sides = (nn.InstanceNorm1d, (5,)) if flat else (nn.InstanceNorm2d, (2, 3))
    rule = ChannelRule(stirred(maker(channels, affine=True)))
    inputs = normal(2 * views, channels, *sides, seed=seed)
    assert_rule_is_right(rule, inputs, records=2, seed=seed, forced=())


@given(
    shape=st.sampled_from([(3,), (2, 3)]), positions=st.sampled_from([(), (4,)]),
    rms=st.booleans(), views=copies, frozen=FROZEN, seed=seeds,
)  # fmt: skip
@few
def test_norms_over_last_axes(shape, positions, rms, views, frozen, seed):
    layer = nn.RMSNorm(shape) if rms else nn.LayerNorm(shape)
    rule = LastAxesRule(freeze(stirred(layer), None if rms else frozen))
    inputs = normal(2 * views, *positions, *shape, seed=seed)
    assert_rule_is_right(rule, inputs, records=2, seed=seed, forced=())


@pytest.mark.parametrize("odd", ["constant", "first pixel far away", "far from zero"])
def test_moments_do_not_cancel(odd):
    """Variances from differences of large squares would be wrong here by far more than 1e-5."""
    inputs = normal(2, 4, 8, 8, seed=1)
    if odd == "constant":
        inputs = inputs.mean((2, 3), keepdim=True).repeat(1, 1, 8, 8)
    elif odd == "far from zero":
        inputs += 300.0
    else:
        inputs[:, :, 0, 0] = 30.0
    layer, grads = stirred(nn.GroupNorm(2, 4)), normal(2, 4, 8, 8, seed=2)
    found = norms_of(ChannelRule(layer).per_record(inputs, grads, 2).values())
    expected = norms_of(layer_gradients(layer, inputs, grads, 2).values())
    assert torch.allclose(found, expected, rtol=NORMS)


@given(sides=st.sampled_from([(), (3,), (2, 3, 4)]), views=copies, seed=seeds)
@few
def test_a_learned_scale_alone(sides, views, seed):
    inputs = normal(2 * views, *sides, seed=seed)
    # One number for a record: where its terms cancel, single precision has no relative bound.
    terms = (inputs * normal(*inputs.shape, seed=seed + 1)).reshape(2, -1)
    assume((terms.sum(1).abs() >= 0.1 * terms.abs().sum(1)).all())
    assert_rule_is_right(ScalarRule(ScalarGain(0.5)), inputs, records=2, seed=seed, forced=())
