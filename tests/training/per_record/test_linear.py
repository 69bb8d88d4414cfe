from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dpal.training.per_record.layer_rule import (
    GHOST,
    INSTANTIATE,
    KEEP,
)
from dpal.training.per_record.linear import EmbeddingRule, LinearRule
from tests.training.per_record.oracle import (
    assert_rule_is_right,
    copies,
    few,
    freeze,
    normal,
    seeds,
)


@given(
    wide=st.integers(1, 5), narrow=st.integers(1, 5),
    positions=st.sampled_from([(), (1,), (3,), (2, 3)]), views=copies, seed=seeds,
    frozen=st.sampled_from([None, "weight", "bias"]), bias=st.booleans(),
)  # fmt: skip
@few
def test_linear(wide, narrow, positions, views, seed, frozen, bias):
    torch.manual_seed(0)
    layer = nn.Linear(wide, narrow, bias=bias)
    freeze(layer, frozen if bias else None)
    inputs = normal(2 * views, *positions, wide, seed=seed)
    assert_rule_is_right(
        LinearRule(layer), inputs, records=2, seed=seed, forced=(GHOST, INSTANTIATE)
    )


@given(
    length=st.integers(1, 6), words=st.integers(2, 5), padding=st.sampled_from([None, 0, -1]),
    views=copies, seed=seeds,
)  # fmt: skip
@few
def test_embedding(length, words, padding, views, seed):
    """Words that repeat add up; what the padding reads is not trained."""
    torch.manual_seed(0)
    layer = nn.Embedding(words, 3, padding_idx=padding)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(words, (2 * views, length), generator=generator)
    assert_rule_is_right(EmbeddingRule(layer), inputs, records=2, seed=seed, forced=(INSTANTIATE,))


@pytest.mark.parametrize("sent", [1.0, 1e4, 1e6])
def test_positions_that_cancel_stay_within_the_bound(sent):
    """Nothing is left of such sums but rounding, and another one each time they are taken.

    Seen red without room for it: up to 1.6 times the bound.
    """
    layer, bias = nn.Embedding(50, 16), nn.Linear(4, 16)
    bias.weight.requires_grad_(False)
    half = sent * normal(8, 128, 16, seed=0)
    back = torch.cat([half, -half.roll(17, dims=1)], dim=1)
    words = torch.zeros(8, 256, dtype=torch.long)
    for rule, inputs in (
        (EmbeddingRule(layer), words),
        (LinearRule(bias), 1e-3 * normal(8, 256, 4, seed=1)),
    ):
        for way in rule.ways(inputs, back, 8):
            found = rule.squared_norms(inputs, back, 8, way=way)
            norms = (found.value + found.rounding).sqrt() * (1 + rule.precision.slack)
            for alone in torch.diag((1 / norms).clamp(max=1.0)):
                (total,) = rule.weighted(inputs, back, alone).values()
                assert total.double().norm() <= 1


def test_the_ways_that_are_offered_suit_the_shape():
    def offered(wide: int, narrow: int, *positions: int) -> tuple[str, ...]:
        rule, inputs = LinearRule(nn.Linear(wide, narrow)), torch.zeros(16, *positions, wide)
        return rule.ways(inputs, torch.zeros(16, *positions, narrow), 16)

    assert offered(512, 32) == (GHOST,)  # a vector: one product of two norms
    assert offered(768, 768, 16) == (GHOST, INSTANTIATE)
    assert offered(8, 8, 128) == (KEEP, GHOST)
    assert offered(64, 64, 50) == (KEEP, GHOST)
