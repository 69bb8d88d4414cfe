from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpal.errors import ParameterError
from dpal.mechanisms.gaussian import standard_normal
from dpal.planning.training_recipe import (
    LEAST_NORM,
    Clipping,
    ClippingKind,
    OptimizerSpec,
    Precision,
    Recipe,
)
from dpal.randomness import secure
from dpal.training.clipping import Clipper
from dpal.training.dp_sgd import PrivateGradient
from tests.training.gradients import flat_gradient

FLAT = Clipping()
PER_LAYER = Clipping(kind=ClippingKind.PER_LAYER)
ADAPTIVE = Clipping(kind=ClippingKind.ADAPTIVE)
squares = st.floats(0, 2.0**100, width=32)
odd_squares = st.one_of(squares, st.sampled_from([math.nan, math.inf]))
quick = settings(max_examples=60, deadline=None)


def clipper(clipping: Clipping = FLAT, norm: float = 1.0, **options) -> Clipper:
    return Clipper(clipping, max_grad_norm=norm, **options)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3))


@given(
    squared=st.lists(odd_squares, min_size=1, max_size=6), norm=st.floats(1e-4, 1e4),
    precision=st.sampled_from(list(Precision)),
)  # fmt: skip
@quick
def test_no_weight_lets_a_record_past_the_bound(squared, norm, precision):
    found = clipper(norm=norm, precision=precision).weigh(torch.tensor([squared]))
    sizes = torch.tensor(squared).double().sqrt()
    finite = sizes.isfinite()
    assert ((found[0] * sizes)[finite] <= norm).all()
    assert (found[0][~finite] == 0).all()
    # Room for norms that are wrong by the slack; below it records stay whole.
    assert ((found[0] * sizes * (1 + precision.slack))[finite] <= norm * (1 + 1e-6)).all()
    assert (found[0][sizes < norm / (1 + 2 * precision.slack)] == 1).all()


def test_a_norm_whose_square_float32_does_not_hold_is_refused():
    """It would be measured as 0, and its gradient left as long as it is."""
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([54.0, 0.0, 0.0]))  # as good as sure of the first class
    record = torch.ones(1, 4), torch.tensor([0])
    options: dict[str, Any] = {
        "noise_multiplier": 1.0,
        "expected_batch_size": 1,
        "physical_batch": 8,
    }

    def contribution(norm):
        gradient = PrivateGradient(model, max_grad_norm=norm, rng=secure(), **options)
        return np.linalg.norm(gradient.clipped_sum(*record))

    assert 0 < contribution(LEAST_NORM) <= LEAST_NORM
    for norm in (1e-30, LEAST_NORM / 2):
        with pytest.raises(ParameterError, match="max_grad_norm"):
            contribution(norm)
        with pytest.raises(ParameterError, match=r"training\.max_grad_norm"):
            OptimizerSpec(name="sgd", learning_rate=0.1, momentum=0.0, max_grad_norm=norm)


@given(columns=st.lists(st.tuples(squares, squares, squares), min_size=1, max_size=5))
@quick
def test_groups_have_equal_shares_of_the_square(columns):
    squared = torch.tensor(columns).T
    found = clipper(PER_LAYER, norm=2.0).weigh(squared)
    parts = found.double() * squared.double().sqrt()
    assert (parts <= 2 / math.sqrt(3)).all()
    assert (parts.square().sum(0).sqrt() <= 2).all()


def test_a_record_that_is_broken_in_one_group_is_out_of_all():
    squared = torch.tensor([[1.0, math.nan, 1.0], [1.0, 1.0, math.inf]])
    assert clipper(PER_LAYER).weigh(squared)[:, 1:].tolist() == [[0, 0], [0, 0]]


def test_parameters_of_a_layer_stay_in_one_group():
    model = net()
    assert clipper(FLAT).groups(model) == [0] * 6
    assert clipper(ADAPTIVE).groups(model) == [0] * 6
    assert clipper(PER_LAYER).groups(model) == [0, 0, 1, 1, 2, 2]
    model[0].requires_grad_(False)  # numbers stay without a gap: shares are of those that train
    assert clipper(PER_LAYER).groups(model) == [0, 0, 1, 1]
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert clipper(PER_LAYER).groups(tied) == [0, 0, 1]


@pytest.mark.parametrize("clipping", [FLAT, PER_LAYER, ADAPTIVE], ids=lambda c: c.kind)
def test_contributions_of_single_records(clipping, bits):
    """The whole stays at C; per layer, every layer stays at its share, and reaches it."""
    gradient = PrivateGradient(
        net(), max_grad_norm=0.1, noise_multiplier=1.0, expected_batch_size=16.0,
        physical_batch=4, rng=bits, recipe=Recipe(clipping=clipping),
    )  # fmt: skip
    inputs = 10 * torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    sizes = [p.numel() for p in net().parameters()]
    for i in range(6):
        one = gradient.clipped_sum(inputs[i : i + 1], torch.zeros(1, dtype=torch.long))
        assert np.linalg.norm(one) <= 0.1
        if clipping is PER_LAYER:
            parts = np.split(one, np.cumsum(sizes)[1:-1:2])
            assert all(np.linalg.norm(part) <= 0.1 / math.sqrt(3) for part in parts)
            assert np.linalg.norm(parts[-1]) > 0.0999 / math.sqrt(3)
        else:
            assert np.linalg.norm(one) > 0.0999


@given(
    noise_multiplier=st.floats(0.3, 20), count_noise=st.floats(0.01, 2),
    batch_size=st.floats(16, 1e5),
)  # fmt: skip
@quick
def test_gradient_and_count_cost_what_the_gradient_alone_would(
    noise_multiplier, count_noise, batch_size
):
    """Two Gaussian releases of sensitivities 1 (over C) and 1/2 are one of both together."""
    found = clipper(Clipping(kind=ClippingKind.ADAPTIVE, count_noise=count_noise))
    deviation = found.count_deviation(batch_size)
    assert deviation == pytest.approx(count_noise * batch_size)
    if 2 * deviation <= noise_multiplier:
        with pytest.raises(ParameterError, match="little noise"):
            found.gradient_noise(noise_multiplier, expected_batch_size=batch_size)
        return
    gradient = found.gradient_noise(noise_multiplier, expected_batch_size=batch_size)
    assert gradient > noise_multiplier
    joint = math.hypot(1 / gradient, 0.5 / deviation)  # sensitivity of both over their noise
    assert joint == pytest.approx(1 / noise_multiplier)


def test_the_refusal_says_what_would_do():
    found = clipper(Clipping(kind=ClippingKind.ADAPTIVE, count_noise=0.001))
    with pytest.raises(ParameterError, match=r"above 0\.0391"):
        found.gradient_noise(5.0, expected_batch_size=64.0)
    enough = clipper(Clipping(kind=ClippingKind.ADAPTIVE, count_noise=0.0392))
    assert enough.gradient_noise(5.0, expected_batch_size=64.0) > 5


def test_other_kinds_pay_for_nothing():
    for clipping in (FLAT, PER_LAYER):
        found = clipper(clipping)
        assert not found.adaptive
        assert found.gradient_noise(5.0, expected_batch_size=1.0) == 5.0
        assert found.state() == {}


@given(squared=st.lists(odd_squares, min_size=1, max_size=5), record=odd_squares)
@quick
def test_one_record_moves_the_count_by_a_half_at_most(squared, record):
    """Against the null record, which adds nothing."""
    found = clipper(ADAPTIVE)
    found.weigh(torch.tensor([squared]))
    without = found.take_count()
    found.weigh(torch.tensor([[*squared, record]]))
    assert abs(found.take_count() - without) in (0.0, 0.5)
    assert found.take_count() == 0


def test_the_count_is_of_whole_records():
    found = clipper(ADAPTIVE, norm=2.0)
    found.weigh(torch.tensor([[1.0, 4.0, 4.1, math.nan]]))  # two whole, one clipped, one out
    found.weigh(torch.tensor([[9.0]]))
    assert found.take_count() == 1.0 - 1.0


def test_the_count_belongs_to_one_sum_also_after_an_attempt_that_broke_off(bits):
    found = clipper(ADAPTIVE, norm=1e3)
    gradient = PrivateGradient(
        net(), max_grad_norm=1e3, noise_multiplier=1.0, expected_batch_size=64.0,
        physical_batch=4, rng=bits, recipe=Recipe(clipping=ADAPTIVE), clipper=found,
    )  # fmt: skip
    inputs, targets = torch.ones(6, 4), torch.zeros(6, dtype=torch.long)
    with pytest.raises(RuntimeError):
        gradient.clipped_sum(torch.cat([inputs, inputs]), targets)  # breaks off in a later part
    gradient.clipped_sum(inputs, targets)
    assert found.take_count() == 3.0  # six whole records


@pytest.mark.parametrize("quantile", [0.3, 0.8])
@pytest.mark.parametrize("start", [0.02, 300.0])
def test_the_bound_follows_the_quantile(quantile, start, bits):
    """Log-normal norms; it comes from far below and from far above, through the noise."""
    clipping = Clipping(kind=ClippingKind.ADAPTIVE, quantile=quantile, count_noise=0.02)
    found, norms = clipper(clipping, norm=start), np.random.default_rng(1)
    bounds = []
    for _ in range(250):
        drawn = torch.tensor(norms.lognormal(0.5, 0.7, 300), dtype=torch.float32)
        found.weigh(drawn.square()[None])
        noise = found.count_deviation(300.0) * float(standard_normal(1, rng=bits)[0])
        found.move(found.take_count() + noise, expected_batch_size=300.0)
        bounds.append(found.bound)
    wanted = math.exp(0.5 + 0.7 * {0.3: -0.5244, 0.8: 0.8416}[quantile])
    # Noise of 0.02 and sampling of 0.03 on the share move the bound by about 3 % at the end.
    assert np.mean(bounds[-50:]) == pytest.approx(wanted, rel=0.1)


def test_a_count_beyond_all_sense_moves_the_bound_no_further_than_a_step():
    found = clipper(ADAPTIVE)
    found.move(1e9, expected_batch_size=10.0)
    assert found.bound == pytest.approx(math.exp(-0.2 * 0.5))
    for _ in range(1000):
        found.move(-1e9, expected_batch_size=10.0)
    assert found.bound == 1e6  # and never further from where it began


def test_a_resumed_bound_goes_on_where_it_was():
    found = clipper(ADAPTIVE, norm=0.7)
    for count in (3.0, -4.0, 4.5):
        found.move(count, expected_batch_size=10.0)
    again = clipper(ADAPTIVE, norm=0.7)
    again.restore({name: value.clone() for name, value in found.state().items()})
    assert again.bound == found.bound != 0.7
    found.move(1.0, expected_batch_size=10.0)
    again.move(1.0, expected_batch_size=10.0)
    assert again.bound == found.bound


def test_noise_grows_with_the_bound_and_the_count_leaves_with_noise(bits):
    """Deviation of the released gradient: joint multiplier times the bound of the moment."""
    fast = Clipping(kind=ClippingKind.ADAPTIVE, quantile=0.9, quantile_step=2.0)
    model, found = nn.Linear(200, 50), clipper(fast, norm=0.5)
    gradient = PrivateGradient(
        model, max_grad_norm=0.5, noise_multiplier=2.0, expected_batch_size=64.0,
        physical_batch=8, rng=bits, recipe=Recipe(clipping=fast), clipper=found,
    )  # fmt: skip
    multiplier = found.gradient_noise(2.0, expected_batch_size=64.0)
    bounds = []
    for _ in range(4):
        bound = found.bound
        gradient.write(torch.empty(0, 200), torch.empty(0, dtype=torch.long))
        released = flat_gradient(model)
        # 10,050 values: 4.9 standard errors of 0.7 %; false alarms 1e-6 a look.
        assert float(released.std()) * 64 / (multiplier * bound) == pytest.approx(1, abs=0.035)
        bounds.append(found.bound)
    # Of an empty batch half seem whole, and the count is noise alone.
    assert len({round(bound / 0.5 / math.exp(0.8 * i), 6) for i, bound in enumerate(bounds)}) == 4
    assert 6 < bounds[-1] < 25  # 0.5 e^(4 x 0.8), and the noise of four counts
