from __future__ import annotations

import pytest
import torch

from dpal.errors import ParameterError
from dpal.models.registry import build_model
from dpal.models.spec import ModelSpec


def parameters(spec: ModelSpec) -> int:
    return sum(p.numel() for p in build_model(spec).parameters())


def test_parameter_counts():
    # 26,010 is printed by the TensorFlow Privacy tutorial.
    assert parameters(ModelSpec(name="tutorial_cnn", input_shape=(1, 28, 28), classes=10)) == 26_010
    assert parameters(ModelSpec(name="logistic", input_shape=(54,), classes=2)) == 54 * 2 + 2
    mlp = ModelSpec(name="mlp", input_shape=(4,), classes=3, hidden=(5, 6))
    assert parameters(mlp) == 4 * 5 + 5 + 5 * 6 + 6 + 6 * 3 + 3


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 16, 16), (3, 64, 48)])
def test_the_tutorial_cnn_takes_images(shape):
    model = build_model(ModelSpec(name="tutorial_cnn", input_shape=shape, classes=7))
    assert model(torch.zeros(2, *shape)).shape == (2, 7)


def test_weights_repeat_and_follow_the_seed():
    spec = {"name": "tutorial_cnn", "input_shape": (1, 28, 28), "classes": 10}
    torch.manual_seed(1)
    one = build_model(ModelSpec(**spec)).state_dict()
    torch.manual_seed(2)
    same = build_model(ModelSpec(**spec)).state_dict()
    other = build_model(ModelSpec(**spec, seed=1)).state_dict()
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["dense.weight"], other["dense.weight"])


def test_records_are_treated_apart():
    model = build_model(ModelSpec(name="tutorial_cnn", input_shape=(1, 28, 28), classes=10)).eval()
    generator = torch.Generator().manual_seed(0)
    records = torch.randn(4, 1, 28, 28, generator=generator)
    changed = records.clone()
    changed[3] = 1000.0
    assert torch.allclose(model(records)[:3], model(changed)[:3], atol=1e-6)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"name": "resnet", "input_shape": (8,)}, "model.name must be one of logistic, mlp"),
        ({"name": "tutorial_cnn", "input_shape": (8,)}, "takes images of at least 16x16"),
        ({"name": "tutorial_cnn", "input_shape": (1, 12, 28)}, "takes images of at least 16x16"),
    ],
)
def test_what_does_not_fit_is_said(values, sentence):
    with pytest.raises(ParameterError, match=sentence):
        build_model(ModelSpec(**values, classes=3))
