"""Public weights of a text classifier: of all habits, and never with code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dpal.errors import DataError
from tests.models.tiny_bert import SIZES, VOCABULARY, model_of, write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("bert"))


def old_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    swaps = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
    for new, old in swaps:
        weights = {name.replace(new, old): value for name, value in weights.items()}
    return weights


def without_prefix(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("bert."): value for name, value in weights.items()}


def with_other_heads(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    extra = {
        "classifier.weight": torch.ones(3, 12),
        "classifier.bias": torch.ones(3),
        "cls.predictions.bias": torch.ones(len(VOCABULARY)),
        "bert.embeddings.position_ids": torch.arange(16)[None],
    }
    return {**weights, **extra}


@pytest.mark.parametrize("change", [old_names, without_prefix, with_other_heads])
def test_checkpoints_of_all_habits_are_read(folder, tmp_path, change):
    again = write_folder(tmp_path)
    save_file(change(load_file(again / "model.safetensors")), again / "model.safetensors")
    found, expected = (model_of(one).state_dict() for one in (again, folder))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_checkpoint_without_a_pooler_gets_a_fresh_one(tmp_path):
    folder = write_folder(tmp_path)
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "pooler" not in name}
    save_file(kept, folder / "model.safetensors")
    fresh, again, other = (model_of(folder, seed=seed).pooler.dense.weight for seed in (1, 1, 2))
    assert torch.equal(fresh, again)
    assert not torch.equal(fresh, other)
    assert not torch.equal(fresh, weights["bert.pooler.dense.weight"])


def test_a_pickle_is_not_loaded_and_the_refusal_says_how_to_convert_it(folder, forked, tmp_path):
    again = write_folder(tmp_path)
    safe, pickled = again / "model.safetensors", again / "pytorch_model.bin"
    weights = load_file(safe)
    # Public checkpoints have one tensor under two names, and some that lie across memory.
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]
    weights["bert.pooler.dense.weight"] = weights["bert.pooler.dense.weight"].T.contiguous().T
    torch.save(weights, pickled)
    safe.unlink()
    with pytest.raises(DataError, match="a pickle") as refused:
        model_of(again)
    told = "safetensors.torch.save_file" + str(refused.value).partition("torch.save_file")[2]
    told = told.replace("FILE", repr(str(pickled))).replace("NEW", repr(str(safe)))
    forked.run(f"import torch, safetensors.torch; {told}").check_returncode()
    found, expected = (model_of(one).state_dict() for one in (again, folder))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def break_folder(folder: Path, how: str) -> None:
    weights = load_file(folder / "model.safetensors")
    if how == "no config":
        (folder / "config.json").unlink()
    elif how == "no json":
        (folder / "config.json").write_text("BERT")
    elif how == "list":
        (folder / "config.json").write_text("[1]")
    elif how == "no sizes":
        (folder / "config.json").write_text('{"vocab_size": 3}')
    elif how == "roberta":
        (folder / "config.json").write_text(json.dumps({**SIZES, "model_type": "roberta"}))
    elif how == "relative":
        (folder / "config.json").write_text(
            json.dumps({**SIZES, "position_embedding_type": "relative_key"})
        )
    elif how == "swish":
        (folder / "config.json").write_text(json.dumps({**SIZES, "hidden_act": "silu"}))
    elif how == "no weights":
        (folder / "model.safetensors").unlink()
    elif how == "cut":
        whole = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(whole[:-7])
    elif how == "lacks":
        weights.pop("bert.encoder.layer.1.output.dense.bias")
        save_file(weights, folder / "model.safetensors")
    elif how == "shape":
        weights["bert.pooler.dense.weight"] = torch.zeros(3, 3)
        save_file(weights, folder / "model.safetensors")
    elif how == "nan":
        weights["bert.pooler.dense.weight"][0, 0] = torch.nan
        save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("no config", r"config\.json; .*model\.weights"),
        ("no json", "a BERT"),
        ("list", "a BERT"),
        ("no sizes", "a BERT"),
        ("roberta", "model_type is 'roberta' .*bert"),
        ("relative", "position_embedding_type is 'relative_key'"),
        ("swish", "hidden_act is 'silu' .*gelu"),
        ("no weights", r"model\.safetensors; .*model\.weights"),
        ("cut", "is no safetensors file"),
        ("lacks", "it lacks encoder.layer.1.output.dense.bias"),
        ("shape", "its pooler.dense.weight has shape"),
        ("nan", "its pooler.dense.weight holds values"),
    ],
)
def test_a_folder_that_does_not_fit_ends_in_a_sentence(tmp_path, how, said):
    folder = write_folder(tmp_path)
    break_folder(folder, how)
    with pytest.raises(DataError, match=said):
        model_of(folder)
