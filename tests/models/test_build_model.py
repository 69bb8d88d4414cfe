from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from dpal.errors import ParameterError
from dpal.models.architectures import ARCHITECTURES, Architecture
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from tests.models.checks import spec_of

LIGHT = ("logistic", "mlp", "tutorial_cnn", "resnet9", "equivariant_resnet9", "wide_resnet16_4")


def replace_mlp(monkeypatch, model):
    monkeypatch.setitem(ARCHITECTURES, "mlp", Architecture(name="mlp", made_by=lambda spec: model))


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


@pytest.mark.parametrize("name", LIGHT)
def test_weights_repeat_and_follow_the_seed(name):
    spec = spec_of(name, (1, 16, 16), hidden=(8,))
    torch.manual_seed(1)
    one = build_model(spec).state_dict()
    torch.manual_seed(2)
    same = build_model(spec).state_dict()
    other = build_model(replace(spec, seed=1)).state_dict()
    assert all(torch.equal(one[key], same[key]) for key in one)
    drawn = [key for key in one if one[key].unique().numel() > 1 and "basis" not in key]
    assert any(key.endswith("weight") for key in drawn)
    assert not any(torch.equal(one[key], other[key]) for key in drawn)


def test_weights_are_those_of_earlier_versions():
    """A plan names a seed: what it stands for may not move."""
    first = {
        "tutorial_cnn": (-0.06571383774280548, 0.07449948787689209),
        "mlp": (0.014587381854653358, -0.007090444676578045),
        "logistic": (0.0113301370292902, 0.01362016424536705),
    }
    for name, (of_first, of_last) in first.items():
        model = build_model(spec_of(name, (1, 28, 28), hidden=(5,)))
        values = [parameter.flatten()[0].item() for parameter in model.parameters()]
        assert (values[0], values[-1]) == (of_first, of_last)


def test_all_models_of_the_papers_are_there():
    papers = {"nfnet_f0", "resnet50", "densenet121", "text_classifier"}
    assert set(ARCHITECTURES) >= {*LIGHT, *papers}


def test_embeddings_are_drawn_and_padding_is_zero(monkeypatch):
    replace_mlp(monkeypatch, nn.Embedding(500, 40, padding_idx=3))
    torch.manual_seed(1)
    table = build_model(spec_of("mlp")).get_parameter("weight")
    torch.manual_seed(2)
    assert torch.equal(build_model(spec_of("mlp")).get_parameter("weight"), table)
    assert (table[3] == 0).all()
    # 19,960 normal values: the sample's deviation is 0.0001 off, one in 10^6 times 0.0005.
    assert table[torch.arange(500) != 3].std().item() == pytest.approx(0.02, abs=0.0005)


@pytest.mark.parametrize(
    ("trainable", "training"),
    [
        ((), {"first", "second", "dense", "classify"}),
        (("classify",), {"classify"}),
        (("classify.", "dense.bias"), {"classify", "dense.bias"}),
        (("second", "classify"), {"second", "classify"}),
    ],
)
def test_only_what_is_named_trains(trainable, training):
    model = build_model(spec_of("tutorial_cnn", (1, 28, 28), trainable=trainable))
    whole = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    expected = {
        name
        for name, _ in model.named_parameters()
        if name in training or name.partition(".")[0] in training
    }
    assert whole == expected
    model(torch.zeros(2, 1, 28, 28)).sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == expected


def test_a_name_is_not_the_beginning_of_a_longer_one(monkeypatch):
    layers = nn.ModuleDict({"1": nn.Linear(2, 2), "11": nn.Linear(2, 2)})
    replace_mlp(monkeypatch, layers)
    model = build_model(spec_of("mlp", trainable=("1",)))
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {
        "1.weight",
        "1.bias",
    }


@pytest.mark.parametrize("prefix", ["clas", "third", "first.gain", ""])
def test_a_prefix_that_names_nothing_is_refused(prefix):
    spec = spec_of("tutorial_cnn", (1, 28, 28), trainable=("dense", prefix))
    with pytest.raises(ParameterError, match=f"'{prefix}', which .* first, second, dense, clas"):
        build_model(spec)


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
        (
            {"name": "resnet", "input_shape": (8,)},
            "model.name must be one of densenet121, .* logistic, mlp",
        ),
        ({"name": "tutorial_cnn", "input_shape": (8,)}, "at least 16x16"),
        ({"name": "tutorial_cnn", "input_shape": (1, 12, 28)}, "at least 16x16"),
    ],
)
def test_what_does_not_fit_is_said(values, sentence):
    with pytest.raises(ParameterError, match=sentence):
        build_model(ModelSpec(**values, classes=3))
