from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dpal.errors import ParameterError
from dpal.training.per_record.fallback import FunctionalRule
from tests.training.per_record.oracle import (
    assert_rule_is_right,
    copies,
    few,
    normal,
    seeds,
)


class Odd(nn.Module):
    """Parameters of its own, a layer inside that it calls twice, and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.tilt = nn.Parameter(normal(3, 3, seed=1))
        self.inside = nn.Linear(3, 3)
        self.frozen = nn.Parameter(normal(3, seed=2), requires_grad=False)

    def forward(self, inputs):
        return self.inside(torch.tanh(self.inside(inputs @ self.tilt))) * self.frozen


@given(positions=st.sampled_from([(), (2,)]), views=copies, seed=seeds)
@few
def test_any_module(positions, views, seed):
    torch.manual_seed(0)
    rule = FunctionalRule(Odd(), "odd")
    assert rule.parameters == ("tilt", "inside.weight", "inside.bias")
    inputs = normal(2 * views, *positions, 3, seed=seed)
    assert_rule_is_right(rule, inputs, records=2, seed=seed, forced=())


@pytest.mark.parametrize("layer", [nn.PReLU(), nn.ConvTranspose2d(2, 3, 2)])
def test_layers_without_a_rule_of_their_own(layer):
    inputs = normal(4, 2, 3, 3, seed=1)
    assert_rule_is_right(FunctionalRule(layer, "x"), inputs, records=2, seed=3, forced=())


def test_dropout_inside_is_refused_in_training_alone():
    """The module runs twice, and the second run would drop other units."""
    module = nn.Module()
    module.scale, module.drop = nn.Parameter(torch.ones(1)), nn.Dropout(0.1)
    with pytest.raises(ParameterError, match=r"layer 'head' \(Module\) .*holds dropout \(drop\)"):
        FunctionalRule(module, "head")
    FunctionalRule(module.eval(), "head")
    attention = nn.MultiheadAttention(4, 2, dropout=0.1)  # keeps its chance as a number
    with pytest.raises(ParameterError, match="holds dropout"):
        FunctionalRule(attention, "attention")
