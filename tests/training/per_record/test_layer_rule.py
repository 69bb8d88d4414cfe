"""Gram matrices cancel where positions do; what rounding hides must not let a record through."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dpal.planning.training_recipe import Clipping, Precision
from dpal.training.clipping import Clipper
from dpal.training.per_record.convolution import ConvolutionRule
from dpal.training.per_record.layer_rule import (
    GHOST,
    INSTANTIATE,
    PIXEL_GRAM,
    Rule,
)
from dpal.training.per_record.linear import LinearRule
from dpal.training.per_record.norms_and_sums import (
    SquaredNorms,
    gram_product,
    measured,
    squares,
    weighed,
)
from tests.training.per_record.oracle import normal, seeds

RECORDS = 8


def cancelling(kind: str, side: int, seed: int) -> tuple[Rule, Tensor, Tensor]:
    """The same input at each position, and output gradients whose sum is rounding alone."""
    torch.manual_seed(0)
    if kind == "linear":
        rule: Rule = LinearRule(nn.Linear(8, 6, bias=False))
        inputs = normal(RECORDS, 1, 8, seed=seed).repeat(1, side**2, 1)
        grads = normal(RECORDS, side**2, 6, seed=seed + 1)
        return rule, inputs, grads - grads.mean(1, keepdim=True)
    layer = nn.Conv2d(8, 6, 1, bias=False)  # of larger filters the border would not cancel
    inputs = normal(RECORDS, 8, 1, 1, seed=seed).repeat(1, 1, side, side)
    grads = normal(RECORDS, 6, side, side, seed=seed + 1)
    return ConvolutionRule.of(layer), inputs, grads - grads.mean((2, 3), keepdim=True)


def largest_over_c(rule: Rule, inputs: Tensor, grads: Tensor, way: str, *, room: bool) -> float:
    """Largest norm of what a record adds to the sum, over C: half of what the least one sends."""
    found = rule.squared_norms(inputs, grads, RECORDS, way=way)
    alone = torch.stack(
        [rule.weighted(inputs[i : i + 1], grads[i : i + 1], torch.ones(1))["weight"].norm()
         for i in range(RECORDS)]
    )  # fmt: skip
    bound = 0.5 * float(alone.min())
    clipper = Clipper(Clipping(), max_grad_norm=bound)
    weights = clipper.weigh((found.value + found.rounding * room)[None])[0]
    return float((weights * alone).max()) / bound


@given(
    kind=st.sampled_from(["linear", "convolution"]), way=st.sampled_from([GHOST, PIXEL_GRAM]),
    side=st.integers(2, 16), seed=seeds,
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_what_cancels_stays_below_the_bound(kind, way, side, seed):
    rule, inputs, grads = cancelling(kind, side, seed)
    way = GHOST if kind == "linear" else way
    assert largest_over_c(rule, inputs, grads, way, room=True) <= 1
    assert largest_over_c(rule, inputs, grads, INSTANTIATE, room=True) <= 1


@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_without_room_for_rounding_records_would_pass(kind):
    """The test above has the power to see what the room is for."""
    worst = max(
        largest_over_c(*cancelling(kind, side, seed), GHOST, room=False)
        for side in (4, 16)
        for seed in range(5)
    )
    assert worst > 1.5


def test_the_room_is_small_beside_what_does_not_cancel():
    """Else records would be clipped to less than C for nothing."""
    for side in (4, 16):
        inputs, grads = normal(4, 16, side, side, seed=1), normal(4, 16, side, side, seed=2)
        rule = ConvolutionRule.of(nn.Conv2d(16, 16, 3, padding=1))
        for way in (GHOST, PIXEL_GRAM):
            found = rule.squared_norms(inputs, grads, 4, way=way)
            assert (found.rounding < 2e-4 * found.value).all()


def test_gram_products():
    first, second = normal(3, 4, 4, seed=1), normal(3, 4, 4, seed=2)
    found = gram_product(first, second)
    expected = torch.einsum("nij,nij->n", first, second).clamp(min=0)
    assert torch.allclose(found.value, expected, atol=1e-5)
    size = first.flatten(1).norm(dim=1) * second.flatten(1).norm(dim=1)
    assert torch.allclose(found.rounding, 1e-6 * size)
    exact = SquaredNorms.exact(torch.ones(2))
    assert exact.rounding.tolist() == [0, 0]
    # A product that is negative by rounding is not: its root would be NaN, the weight 0.
    assert (gram_product(first, -first).value == 0).all()
    huge = gram_product(first * 1e12, second * 1e12)
    assert huge.rounding.isfinite().all()


def ten_bits(values: Tensor) -> Tensor:
    """Factors as an accelerator's TF32 products read them: rounded to 10 bits."""
    whole = values.contiguous().view(torch.int32)
    return ((whole + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)


@pytest.mark.parametrize("precision", [Precision.TF32, Precision.BF16])
@pytest.mark.parametrize("positions", [4, 64, 1024])
def test_rounded_factors_stay_below_the_bound(precision, positions):
    """Where positions cancel to a thousandth, the float32 room would let 1.01 C through."""
    inputs = normal(32, 1, 64, seed=1).repeat(1, positions, 1)
    grads = normal(32, positions, 32, seed=2)
    grads = grads - grads.mean(1, keepdim=True) + 1e-3 * normal(32, 1, 32, seed=3)
    if precision is Precision.BF16:
        inputs, grads = inputs.bfloat16().float(), grads.bfloat16().float()
    found = torch.bmm(ten_bits(grads).transpose(1, 2), ten_bits(inputs))

    def largest(room: Precision) -> float:
        value, rounding = measured(found, inputs, grads, precision=room)
        bound = 0.5 * float(value.min().sqrt())
        clipper = Clipper(Clipping(), max_grad_norm=bound, precision=precision)
        weights = clipper.weigh((value + rounding)[None])[0, :, None, None]
        summed = torch.bmm(ten_bits(weights * grads).transpose(1, 2), ten_bits(inputs))
        return float(summed.flatten(1).norm(dim=1).max()) / bound

    assert largest(precision) <= 1
    if (precision, positions) == (Precision.TF32, 4):
        assert largest(Precision.FP32) > 1.01


def test_weighted_totals_of_any_layout():
    """In the order of memory, without a copy: kept filters lie taps first."""
    weights = torch.linspace(0, 1, 3)
    for order in ((0, 1, 2, 3), (0, 3, 1, 2), (0, 2, 3, 1)):
        values = normal(3, 4, 5, 6, seed=1).permute(order)
        assert torch.allclose(weighed(values, weights), torch.tensordot(weights, values, 1))
    assert torch.allclose(weighed(weights, weights), weights @ weights)


def test_squares_of_large_gradients_keep_their_digits():
    """torch's vector_norm is 4e-5 wrong here, and 7e-4 for ten million values."""
    values = normal(2, 1000, 2000, seed=1)
    for laid in (values, values.transpose(1, 2)):
        expected = values.double().square().sum((1, 2))
        assert torch.allclose(squares(laid).double(), expected, rtol=1e-6)
