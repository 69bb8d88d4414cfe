from __future__ import annotations

import logging
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpal.labels import Task
from dpal.training.losses import per_record_loss
from dpal.training.per_record.book_keeping import BookKeeping
from dpal.training.per_record.capture import UnknownCall
from dpal.training.per_record.layer_rule import (
    KEEP,
    PIXEL_GRAM,
)
from tests.training.per_record.oracle import (
    assert_same_norms,
    assert_same_sums,
    copies,
    few,
    model_gradients,
    normal,
    norms_of,
    seeds,
)

LOSS = per_record_loss(Task.SINGLE_LABEL)


def engine_of(model: nn.Module) -> BookKeeping:
    count = sum(p.requires_grad for p in model.parameters())
    return BookKeeping(model, loss=LOSS, groups=[0] * count)


def assert_right(model: nn.Module, inputs: Tensor, targets: Tensor, *, views: int = 1) -> None:
    """Norms and sums, with weights that tell records apart."""
    gradients, records = model_gradients(model, inputs, targets, views=views), len(inputs) // views
    engine, weights = engine_of(model), torch.linspace(0.2, 1, records)
    norms = engine.squared_norms(inputs, targets, copies=views)[0].sqrt()
    assert_same_norms(norms, norms_of(gradients))
    sums = engine.weighted_sum(
        inputs, targets, real=records, copies=views, weigh=lambda found: weights.expand_as(found)
    )
    assert_same_sums(sums, [torch.tensordot(weights.double(), one, 1) for one in gradients])


def small_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Tanh(),
        nn.Conv2d(4, 3, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3),
    )  # fmt: skip


def batch(count: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    inputs = normal(count, 2, 6, 5, seed=seed)
    return inputs, torch.arange(count) % 3


@given(
    records=st.integers(1, 3), views=copies, last=st.booleans(), seed=seeds,
    frozen=st.sets(st.integers(0, 7), max_size=6),
)  # fmt: skip
@few
def test_views_layouts_and_frozen_parameters(records, views, last, seed, frozen):
    model, (inputs, targets) = small_net(), batch(records * views, seed)
    for number, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(number not in frozen)
    if last:
        nn.utils.convert_conv2d_weight_memory_format(model, torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    assert_right(model, inputs, targets, views=views)
    assert [n for n, p in enumerate(model.parameters()) if not p.requires_grad] == sorted(frozen)


class Attention(nn.Module):
    """Tokens, attention between linear layers, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4, padding_idx=0)
        self.mix = nn.Linear(4, 12)
        self.norm, self.classify = nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, tokens):
        query, key, value = self.mix(self.words(tokens)).chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.classify(self.norm(mixed).mean(dim=1))


@pytest.mark.parametrize("views", [1, 2])
def test_attention_through_its_linear_layers(views):
    torch.manual_seed(0)
    tokens = torch.randint(7, (6, 5), generator=torch.Generator().manual_seed(1))
    assert_right(Attention(), tokens, torch.arange(6) % 3, views=views)


class Twice(nn.Module):
    """One layer that is called twice, and one that shares its weight with another's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight
        self.turn = nn.Linear(4, 4, bias=False)

    def forward(self, inputs):
        once = torch.tanh(self.turn(torch.tanh(self.first(inputs))))
        return self.last(torch.tanh(self.second(torch.tanh(self.turn(once)))))


@pytest.mark.parametrize("views", [1, 3])
def test_gradients_of_shared_layers_add_up_before_they_are_measured(views):
    torch.manual_seed(0)
    assert_right(Twice(), normal(6, 4, seed=1), torch.arange(6) % 3, views=views)


class Scaled(nn.Module):
    """A parameter of its own: no rule knows it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inside = nn.Parameter(normal(4, seed=3)), nn.Linear(4, 4)

    def forward(self, inputs):
        return self.inside(inputs * self.scale)


def test_a_layer_without_a_rule_is_served_and_named(caplog):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), Scaled(), nn.Tanh(), nn.Linear(4, 3))
    with caplog.at_level(logging.WARNING):
        assert engine_of(model).fallbacks == ("1 (Scaled)",)
    assert caplog.messages == ["no rule for 1 (Scaled): torch.func serves there"]
    assert_right(model, normal(3, 4, seed=1), torch.arange(3))


def test_a_layer_that_is_called_with_more_than_one_tensor_is_named():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Bilinear(4, 4, 3)

        def forward(self, inputs):
            return self.mix(inputs, inputs)

    with pytest.raises(UnknownCall, match=r"'mix' \(Bilinear\) is called"):
        engine_of(Two()).squared_norms(normal(2, 4, seed=1), torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_broken_records_reach_no_sum_in_any_kind_of_layer(broken):
    """Kept gradients, stored calls and shared layers: 0 * NaN is NaN in each."""
    torch.manual_seed(0)
    model = nn.Sequential(small_net()[:5], nn.Flatten(2), Twelve())
    inputs, targets = batch(5)
    gradients = model_gradients(model, inputs, targets)
    expected = [one[[0, 1, 3]].sum(0) for one in gradients]  # the last two fill up the chunk
    inputs[[2, 4], :, 1, 1] = broken
    norms: list[Tensor] = []

    def weigh(squared: Tensor) -> Tensor:
        norms.append(squared)
        return torch.where(squared.isfinite(), 1.0, 0.0)

    inputs, targets = torch.cat([inputs[[0, 1, 2, 3]], inputs[[4]]]), targets
    sums = engine_of(model).weighted_sum(inputs, targets, real=4, copies=1, weigh=weigh)
    assert norms[0].isfinite().tolist() == [[True, True, False, True]]  # fillers are not shown
    assert_same_sums(sums, expected)


class Twelve(nn.Module):
    """A layer that is called once for every channel."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.last = nn.Linear(4, 2), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.last(torch.cat([self.each(x) for x in inputs.unbind(1)], dim=1))


def test_what_fills_a_chunk_up_has_no_weight():
    model, (inputs, targets) = small_net(), batch(6)
    engine = engine_of(model)
    sums = engine.weighted_sum(inputs, targets, real=4, copies=1, weigh=torch.ones_like)
    expected = [one[:4].sum(0) for one in model_gradients(model, inputs, targets)]
    assert_same_sums(sums, expected)


def test_whoever_weighs_cannot_let_a_broken_record_in():
    model, (inputs, targets) = small_net(), batch(3)
    expected = [one[1:].sum(0) for one in model_gradients(model, inputs, targets)]
    inputs[0] = math.nan
    sums = engine_of(model).weighted_sum(
        inputs, targets, real=3, copies=1, weigh=lambda squared: torch.ones_like(squared)
    )
    assert_same_sums(sums, expected)


def test_nothing_stays_on_the_model_when_a_pass_fails():
    model, (inputs, targets) = small_net(), batch(3)
    engine = engine_of(model)

    def weigh(squared: Tensor) -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.weighted_sum(inputs, targets, real=3, copies=1, weigh=weigh)
    with pytest.raises(RuntimeError):
        engine.squared_norms(inputs[:, :1], targets)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert not any(layer._forward_hooks for layer in model.modules())
    assert_right(model, inputs, targets)  # and nothing of it is left in the engine
    sums = engine.weighted_sum(inputs, targets, real=3, copies=1, weigh=torch.ones_like)
    assert_same_sums(sums, [one.sum(0) for one in model_gradients(model, inputs, targets)])


def test_the_way_is_pinned_once_for_each_shape_and_told():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.Flatten(), nn.Linear(576, 3))
    engine, targets = engine_of(model), torch.zeros(32, dtype=torch.long)
    engine.squared_norms(normal(4, 64, 3, 3, seed=1), targets[:4])
    assert "0" not in engine.ways()  # too few records to try ways on
    engine.squared_norms(normal(32, 64, 3, 3, seed=1), targets)
    pinned = engine.ways()
    assert pinned["0"] in {PIXEL_GRAM, "ghost"}
    for _ in range(3):
        engine.squared_norms(normal(32, 64, 3, 3, seed=1), targets)
        assert engine.ways() == pinned
    assert KEEP not in pinned.values()
