from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from dpal.errors import DataError
from dpal.models.build_model import build_model
from dpal.models.weights import load_weights
from tests.models.checks import spec_of

NAME, SHAPE = "tutorial_cnn", (1, 28, 28)


def model(**changes):
    return build_model(spec_of(NAME, SHAPE, **changes))


def stored(path, change=lambda state: None, **changes):
    state = dict(model(seed=5, **changes).state_dict())
    change(state)
    save_file(state, path)
    return state


def test_all_weights_come_from_the_file(tmp_path):
    path = tmp_path / "weights.safetensors"
    state = stored(path)
    loaded = model(weights=str(path))
    assert all(torch.equal(state[name], value) for name, value in loaded.state_dict().items())
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_half_precision_is_taken_up_in_full(tmp_path):
    path = tmp_path / "weights.safetensors"
    state = stored(path, lambda state: state.update({k: v.half() for k, v in state.items()}))
    loaded = model(weights=str(path)).state_dict()
    assert all(torch.equal(state[name].float(), value) for name, value in loaded.items())


@pytest.mark.parametrize(
    "change", [lambda state: state.pop("classify.bias"), lambda state: None], ids=["lacks", "other"]
)
def test_only_the_classifier_may_differ(tmp_path, change):
    path = tmp_path / "weights.safetensors"
    state = stored(path, change, classes=7)
    loaded, fresh = model(weights=str(path)).state_dict(), model().state_dict()
    for name, value in loaded.items():
        assert torch.equal(value, (fresh if name.startswith("classify") else state)[name])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda state: state.pop("first.bias"), "it lacks first.bias"),
        (lambda state: state.update(third=torch.ones(1)), "has third"),
        (
            lambda state: state.update({"first.weight": torch.ones(16, 3, 8, 8)}),
            r"its first.weight has shape \(16, 3, 8, 8\), the model's \(16, 1, 8, 8\)",
        ),
        (lambda state: state["dense.bias"].fill_(torch.inf), "dense.bias holds values"),
        (lambda state: state["classify.bias"].fill_(torch.nan), "classify.bias holds values"),
        (lambda state: state.clear(), "model knows"),
    ],
)
def test_weights_of_another_model_are_refused_whole(tmp_path, change, sentence):
    path, untouched = tmp_path / "weights.safetensors", model()
    before = {name: value.clone() for name, value in untouched.state_dict().items()}
    stored(path, change)
    with pytest.raises(DataError, match=sentence):
        load_weights(untouched, path)
    assert all(torch.equal(before[name], value) for name, value in untouched.state_dict().items())


def test_what_is_no_file_of_weights_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"model\.weights takes"):
        model(weights=str(tmp_path))
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"something else altogether")
    with pytest.raises(DataError, match="is no safetensors file"):
        model(weights=str(path))
