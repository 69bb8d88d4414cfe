from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from dpal.errors import ParameterError
from dpal.models.architectures import ARCHITECTURES
from dpal.models.spec import ModelSpec
from dpal.planning.training_recipe import OPTIMIZERS, OptimizerSpec
from dpal.training.optimizers import AgcSgd, build_optimizer, restore_state, state_tensors
from tests.conftest import having
from tests.training.gradients import gradient_of

SPEC = OptimizerSpec(
    name="sgd", learning_rate=0.1, momentum=0.9, max_grad_norm=1.0, weight_decay=0.01
)


def small() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 4), nn.Linear(4, 2))


def gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for one in model.parameters():
        if one.requires_grad:
            one.grad = torch.randn(one.shape, generator=generator)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_stop_changes_no_digit(name):
    """Ten steps at once, and with a file in the middle: momenta, counters, schedules of NAdam."""
    results = []
    for stop in (None, 1, 6):
        model = small()
        optimizer = build_optimizer(replace(SPEC, name=name), model.parameters())
        for step in range(10):
            gradients(model, step)
            optimizer.step()
            if step == stop:
                stored = save(state_tensors(optimizer))
                optimizer = build_optimizer(replace(SPEC, name=name), model.parameters())
                restore_state(optimizer, load(stored))
        results.append(torch.cat([one.detach().flatten() for one in model.parameters()]))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_decay_pulls_towards_zero_and_adamw_apart_from_the_gradient(name):
    spec = replace(SPEC, name=name, momentum=0.0)
    plain, decayed = small(), small()
    for model, decay in ((plain, 0.0), (decayed, 0.5)):
        optimizer = build_optimizer(replace(spec, weight_decay=decay), model.parameters())
        for one in model.parameters():
            one.grad = torch.zeros_like(one)
        optimizer.step()
    before, unchanged, after = (
        model.get_parameter("0.weight") for model in (small(), plain, decayed)
    )
    assert torch.equal(unchanged, before)
    assert after.norm() < before.norm()
    # Plain SGD and AdamW shrink by rate times decay; Adam's first step is as long as the rate.
    shrunk = (1 - 0.1 * 0.5) * before
    assert torch.allclose(after, shrunk) is (name in ("sgd", "sgd_agc", "adamw"))


def test_frozen_parameters_are_left_out():
    model = small()
    model[0].requires_grad_(False)
    optimizer = build_optimizer(SPEC, model.parameters())
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 4


def unit_by_unit(model: nn.Sequential, clipping: float) -> list[torch.Tensor]:
    """Brock et al. (2021), eq. 3, one unit at a time; the last layer left alone."""
    listed = []
    for weight in model.parameters():
        gradient = gradient_of(weight).clone()
        units = [(gradient, weight)] if weight.dim() == 1 else list(zip(gradient, weight))  # noqa: B905
        for part, unit in units:
            largest = clipping * max(float(unit.detach().norm()), 1e-3)
            if part.norm() > largest:
                part *= largest / part.norm()
        listed.append(gradient)
    listed[-2:] = [gradient_of(one).clone() for one in model[-1].parameters()]
    return listed


@pytest.mark.parametrize("clipping", [0.05, 2.0])
def test_agc_by_the_formula(clipping):
    model = small()
    gradients(model, 1)
    with torch.no_grad():
        weight = model.get_parameter("0.weight")
        weight[0] = 0.0  # a unit that starts at zero may still move
        gradient_of(weight)[1] = 0.0
    expected = unit_by_unit(model, clipping)
    before = [one.detach().clone() for one in model.parameters()]
    spec = replace(SPEC, name="sgd_agc", momentum=0.0, weight_decay=0.0, agc_clipping=clipping)
    build_optimizer(spec, model.parameters()).step()
    for was, now, gradient in zip(before, model.parameters(), expected, strict=True):
        assert torch.allclose(now, was - 0.1 * gradient, atol=1e-6)
    assert not torch.equal(before[0][0], weight[0])
    assert torch.isfinite(weight).all()


@pytest.mark.parametrize("name", sorted(ARCHITECTURES.keys() - {"text_classifier"}))
def test_agc_leaves_the_classifier_of_every_model_alone(name):
    shape = (8,) if name in ("logistic", "mlp") else (3, 64, 64)
    hidden = (7,) if name == "mlp" else ()
    with torch.device("meta"):  # names and shapes are enough
        spec = ModelSpec(name=name, input_shape=shape, classes=13, hidden=hidden)
        model = ARCHITECTURES[name].build(spec)
    optimizer = build_optimizer(replace(SPEC, name="sgd_agc"), model.parameters())
    assert isinstance(optimizer, AgcSgd)
    (last,) = [
        one for one in model.modules() if isinstance(one, nn.Linear) and one.out_features == 13
    ]
    assert optimizer._whole == {id(last.weight), id(last.bias)}


def test_what_is_no_optimizer_is_refused():
    with pytest.raises(
        ParameterError, match="adam, adamw", check=having(parameter="training.optimizer")
    ):
        replace(SPEC, name="adagrad")
    with pytest.raises(ParameterError, check=having(parameter="training.weight_decay")):
        replace(SPEC, weight_decay=float("nan"))
    with pytest.raises(ParameterError, match=r"training\.agc_clipping"):
        replace(SPEC, agc_clipping=0.0)
