from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dpal.errors import ParameterError
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.training.evaluation import probabilities
from dpal.training.mc_dropout import draw_masks, mc_probabilities, softmax
from tests.conftest import RepeatableBits, having

SHAPE = (1, 28, 28)
MODELS = ("logistic", "mlp", "tutorial_cnn")  # larger ones: in their own tests, once


def model_named(name: str) -> nn.Module:
    return build_model(ModelSpec(name=name, input_shape=SHAPE, classes=3, hidden=(8,)))


def records(count: int, shape=SHAPE) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


def drop(model, inputs, seed=7, **changes):
    drawn = {"passes": 4}
    drawn |= {name: changes.pop(name) for name in ("passes", "dropout") if name in changes}
    masks = draw_masks(model, **drawn, rng=RepeatableBits(seed))
    return mc_probabilities(model, inputs, masks, **{"physical_batch": 8, **changes})


class ConvolutionsOnly(nn.Module):
    """Convolutions and one linear layer at the end, in places a plain list would miss."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"low": nn.Conv2d(1, 4, 3, stride=2)})
        self.head = nn.Sequential(nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(16, 3))

    def forward(self, inputs):
        return self.head(self.body["low"](inputs))


@pytest.mark.parametrize("name", MODELS)
def test_passes_differ_for_every_model(name):
    model, inputs = model_named(name), records(5)
    found = drop(model, inputs)
    assert found.shape == (4, 5, 3)
    assert found.dtype == np.float64
    assert found.sum(axis=2) == pytest.approx(1)
    for one in range(4):
        for other in range(one):
            assert (found[one] != found[other]).any(axis=1).all()  # for every record


@pytest.mark.parametrize("build", [*MODELS, ConvolutionsOnly])
def test_other_records_of_a_batch_do_not_matter(build):
    model = build() if callable(build) else model_named(build)
    inputs = records(6)
    before = drop(model, inputs)
    changed = inputs.clone()
    changed[1:4], changed[4:] = 1000.0, torch.nan
    after = drop(model, changed)
    assert np.allclose(before[:, 0], after[:, 0], atol=1e-6)
    assert not np.allclose(before[:, 1], after[:, 1], atol=1e-6)
    # Alone, elsewhere, and in other batches.
    assert np.allclose(before[:, :1], drop(model, inputs[:1]), atol=1e-6)
    assert np.allclose(before[:, ::-1], drop(model, inputs.flip(0)), atol=1e-6)
    assert np.allclose(before, drop(model, inputs, physical_batch=2), atol=1e-6)


def test_masks_repeat_with_their_source_and_leave_other_generators_alone():
    model, inputs = model_named("mlp"), records(3)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = drop(model, inputs)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert np.array_equal(one, drop(model, inputs))
    assert not np.array_equal(one, drop(model, inputs, seed=8))


def test_units_are_dropped_at_their_rate_and_the_mean_is_kept():
    """One linear unit per feature shows the masks themselves.

    40 x 1000 units at 0.3: standard deviation of the share 0.0023, so 0.0112 is a 1e-6
    alarm; inputs dropped at 0.35 or not scaled up would be 20 of them away.
    """
    model = nn.Sequential(nn.Linear(1000, 1000, bias=False))
    with torch.no_grad():
        model.get_parameter("0.weight").copy_(torch.eye(1000))
    seen = drop(model, torch.ones(2, 1000), passes=40, to_probabilities=lambda logits: logits)
    assert set(np.unique(seen.round(5))) == {0, round(1 / 0.7, 5)}
    assert (seen[:, 0] == 0).mean() == pytest.approx(0.3, abs=0.0112)
    assert seen[:, 0].mean() == pytest.approx(1, abs=0.0112 / 0.7)
    assert np.array_equal(seen[:, 0], seen[:, 1])  # one mask for all records


def test_more_dropout_moves_further_from_the_model():
    model, inputs = model_named("mlp"), records(20)
    plain = probabilities(model, inputs, physical_batch=8)
    little = np.abs(drop(model, inputs, dropout=0.001, passes=10) - plain).mean()
    much = np.abs(drop(model, inputs, dropout=0.5, passes=10) - plain).mean()
    assert little < much / 5


def test_sigmoids_for_several_labels():
    model, inputs = model_named("logistic"), records(3)
    sigmoids = drop(model, inputs, to_probabilities=torch.sigmoid)
    odds = sigmoids / (1 - sigmoids)  # both come from the same logits
    assert odds / odds.sum(axis=2, keepdims=True) == pytest.approx(drop(model, inputs))
    assert softmax(torch.zeros(2, 4)).numpy() == pytest.approx(np.full((2, 4), 0.25))


def trace(model: nn.Module):
    return [
        (name, module.training, len(module._forward_pre_hooks))
        for name, module in model.named_modules()
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was_found(fails):
    model = ConvolutionsOnly().train()
    model.body.eval()  # part of it is frozen
    model.head[2].register_forward_pre_hook(lambda layer, arguments: None)
    before, weights = trace(model), {k: v.clone() for k, v in model.state_dict().items()}
    if fails:
        with pytest.raises(RuntimeError):  # after the hooks are set: two channels, not one
            drop(model, records(3, (2, 28, 28)))
    else:
        drop(model, records(3))
    assert trace(model) == before
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_nothing_but_the_masks_is_random_in_a_pass():
    """Dropout of the model's own would come from the global generator, record by record."""
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 3)).train()
    inputs = records(3, (4,))
    assert np.array_equal(drop(model, inputs), drop(model, inputs))


@pytest.mark.parametrize(
    ("name", "value"), [("dropout", 0.0), ("dropout", 1.0), ("passes", 0), ("physical_batch", 0)]
)
def test_numbers_out_of_range_are_refused(name, value):
    with pytest.raises(ParameterError, check=having(parameter=name)):
        drop(model_named("logistic"), records(2), **{name: value})


def test_nothing_to_drop_and_nothing_to_score_are_refused():
    with pytest.raises(ParameterError, match="linear layer"):
        drop(nn.Sequential(nn.Conv2d(1, 3, 28), nn.Flatten()), records(2))
    with pytest.raises(ParameterError, check=having(parameter="records")):
        drop(model_named("logistic"), records(0))
