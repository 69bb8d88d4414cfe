"""Folders as public BERT-type models come in, small enough to build in a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from dpal.models.bert import TextClassifier
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec

WORDS = ("good", "bad", "film", "the", "a", "was", "not", "very", ".", "##s", "Good")
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
SIZES: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": len(VOCABULARY),
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}
MAX_TOKENS = 10


def write_folder(folder: Path, **sizes: object) -> Path:
    """Writes config.json, vocab.txt and repeatable random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SIZES, **sizes}), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    generator = torch.Generator().manual_seed(3)
    with torch.device("meta"):
        wanted = TextClassifier(spec_of(folder)).state_dict()
    weights = {
        f"bert.{name}": 0.3 * torch.randn(value.shape, generator=generator)
        for name, value in wanted.items()
        if not name.startswith("classifier.")
    }
    save_file(weights, folder / "model.safetensors")
    return folder


def spec_of(folder: Path, **values: Any) -> ModelSpec:
    """A text classifier of 3 classes on texts of MAX_TOKENS."""
    given: dict[str, Any] = {
        "input_shape": (2, MAX_TOKENS),
        "classes": 3,
        "weights": str(folder),
        **values,
    }
    return ModelSpec(name="text_classifier", **given)


def model_of(folder: Path, **values: Any) -> TextClassifier:
    """Builds it, with its public weights."""
    model = build_model(spec_of(folder, **values))
    assert isinstance(model, TextClassifier)
    return model


def records(
    count: int, *, length: int = MAX_TOKENS, vocabulary: int = len(VOCABULARY)
) -> torch.Tensor:
    """Pairs of random tokens, of 2 to `length` of them, then padding: (count, 2, length)."""
    generator = torch.Generator().manual_seed(5)
    found = torch.zeros(count, 2, length, dtype=torch.int32)
    for record in found:
        used = int(torch.randint(2, length + 1, (1,), generator=generator))
        record[0, :used] = torch.randint(1, vocabulary, (used,), generator=generator)
        record[1, used // 2 : used] = 1
    return found
