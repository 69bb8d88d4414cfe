"""A BERT-type text classifier on public pretrained weights from a local folder.

Names of modules and parameters are those of the public checkpoints, so that `trainable`
takes the prefixes that their readers know, such as "encoder.layer.11" or "pooler".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from dpal.errors import DataError, ParameterError
from dpal.models.spec import ModelSpec
from dpal.models.weights import put_weights, read_safetensors

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_new": partial(nn.GELU, approximate="tanh"),
    "gelu_pytorch_tanh": partial(nn.GELU, approximate="tanh"),
    "relu": nn.ReLU,
}
_FOLDER = "set model.weights (dpal init: --weights) to the local folder of a public BERT-type model"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a BERT's `config.json` says of its shape, under the names used there."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12


@runtime_checkable
class EmbedsTexts(Protocol):
    """A model that makes one vector of a text, whatever it was trained for."""

    def embedded(self, inputs: Tensor) -> Tensor:
        """Takes (n, 2, length) token ids and segments, gives (n, width)."""


class TextClassifier(nn.Module):
    """BERT with a linear classifier on its pooled first token.

    Takes (n, 2, length) token ids and segments, gives logits (n, classes). Id 0 is padding
    and is never attended to. The classifier starts fresh, also where the checkpoint has one,
    as does the pooler where it has none.

    `spec.trainable` names what trains; when empty: the last encoder layer, the pooler and
    the classifier, as in the paper, or, with `spec.adapter_rank`, adapters, pooler and
    classifier. `spec.dropout` is used in all places where BERT drops.
    The last layer computes the first token alone, which is all that the pooler reads; the
    result is the same, and a record's gradients in that layer's dense parts come from one
    token.

    Source: Devlin, Chang, Lee & Toutanova (2019), "BERT"; what trains: Schwethelm et al. (2025).
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        if spec.weights is None:
            raise ParameterError(f"text_classifier starts from public weights; {_FOLDER}")
        sizes = read_sizes(Path(spec.weights))
        if len(spec.input_shape) != 2 or spec.input_shape[0] != 2:
            raise ParameterError(
                f"text_classifier takes texts, the data has records of shape {spec.input_shape}; "
                "use another model.name, or data with a column text_a"
            )
        if spec.input_shape[1] > sizes.max_position_embeddings:
            raise ParameterError(
                f"model.max_tokens is {spec.input_shape[1]} and the model in {spec.weights} has "
                f"{sizes.max_position_embeddings} positions; set model.max_tokens to at most that"
            )
        self.trained_by_default = (
            f"encoder.layer.{sizes.num_hidden_layers - 1}",
            "pooler",
            "classifier",
        )
        self.fresh_parts = ("pooler", "classifier")
        self.embeddings = _Embeddings(sizes, spec.dropout)
        self.encoder = _Encoder(sizes, spec.dropout)
        self.pooler = _Pooler(sizes)
        self.dropout = nn.Dropout(spec.dropout)
        self.classifier = nn.Linear(sizes.hidden_size, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns logits, shape (n, classes)."""
        logits: Tensor = self.classifier(self.dropout(self.pooled(inputs)))
        return logits

    def pooled(self, inputs: Tensor) -> Tensor:
        """What the classifier reads, shape (n, hidden_size)."""
        tokens, segments = inputs.long().unbind(dim=1)
        hidden = self.embeddings(tokens, segments)
        # Finite, so that a record of padding alone gives numbers, too.
        ignored = torch.finfo(hidden.dtype).min
        mask = hidden.new_zeros(tokens.shape).masked_fill(tokens == 0, ignored)
        first: Tensor = self.encoder(hidden, mask[:, None, None, :])
        pooled: Tensor = self.pooler(first[:, 0])
        return pooled

    def embedded(self, inputs: Tensor) -> Tensor:
        """Mean over the tokens of what the last layer makes of them, (n, hidden_size)."""
        tokens, segments = inputs.long().unbind(dim=1)
        hidden = self.embeddings(tokens, segments)
        ignored = torch.finfo(hidden.dtype).min
        padding = tokens == 0
        mask = hidden.new_zeros(tokens.shape).masked_fill(padding, ignored)
        hidden = self.encoder.every_token(hidden, mask[:, None, None, :])
        kept = (~padding).to(hidden.dtype)[:, :, None]
        means: Tensor = (hidden * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)
        return means

    def load_pretrained(self, path: Path) -> None:
        """Takes everything but the classifier from a folder's checkpoint.

        Raises:
          DataError: there is none, or it is damaged or of another model.
        """
        stored = {_renamed(name): value for name, value in _read_checkpoint(path).items()}
        own = self.state_dict()
        if not any(name.startswith("pooler.") for name in stored):
            stored |= {name: value for name, value in own.items() if name.startswith("pooler.")}
        encoder = {name for name in own if not name.startswith("classifier.")}
        put_weights(self, {name: stored[name] for name in stored if name in encoder}, path)


def read_sizes(folder: Path) -> Sizes:
    """Reads the shape of a BERT from a folder's `config.json`.

    Raises:
      DataError: it is missing or incomplete, or the model is of another type.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise DataError(f"{folder} has no config.json; {_FOLDER}")
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        names = [name for name in Sizes.__annotations__ if name in values]
        sizes = Sizes(**{name: values[name] for name in names})
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} does not describe a BERT; {_FOLDER}") from error
    kind = values.get("model_type", "bert")
    positions = values.get("position_embedding_type", "absolute")
    for what, value, supported in (
        ("model_type", kind, ("bert",)),
        ("position_embedding_type", positions, ("absolute",)),
        ("hidden_act", sizes.hidden_act, tuple(_ACTIVATIONS)),
    ):
        if value not in supported:
            raise DataError(
                f"{what} is {value!r} in {path} and must be {' or '.join(supported)}; {_FOLDER}"
            )
    return sizes


class _Embeddings(nn.Module):
    """Sum of what stands for token, position and segment, normalised: (n, length, width)."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.word_embeddings = nn.Embedding(sizes.vocab_size, width)
        self.position_embeddings = nn.Embedding(sizes.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(sizes.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=sizes.layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        # One row of positions a record, or per-record gradients would be of one for all.
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        summed = self.word_embeddings(tokens) + self.token_type_embeddings(segments)
        summed = summed + self.position_embeddings(positions)
        dropped: Tensor = self.dropout(self.LayerNorm(summed))
        return dropped


class _Encoder(nn.Module):
    """All layers; of the last one the first token alone, (n, 1, width)."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.layer = nn.ModuleList(_Layer(sizes, dropout) for _ in range(sizes.num_hidden_layers))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        *most, last = self.layer
        for layer in most:
            hidden = layer(hidden, hidden, mask)
        first: Tensor = last(hidden[:, :1], hidden, mask)
        return first

    def every_token(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """The same of all tokens, (n, length, width)."""
        for layer in self.layer:
            hidden = layer(hidden, hidden, mask)
        return hidden


class _Layer(nn.Module):
    """Attention of `asking` (n, k, width) to all of `hidden` (n, length, width), then a net."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.attention = _Attention(sizes, dropout)
        self.intermediate = _Dense(sizes)
        self.output = _Residual(sizes.intermediate_size, sizes, dropout)

    def forward(self, asking: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
        attended = self.attention(asking, hidden, mask)
        result: Tensor = self.output(self.intermediate(attended), attended)
        return result


class _Attention(nn.Module):
    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.self = _SelfAttention(sizes, dropout)
        self.output = _Residual(sizes.hidden_size, sizes, dropout)

    def forward(self, asking: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
        attended: Tensor = self.output(self.self(asking, hidden, mask), asking)
        return attended


class _SelfAttention(nn.Module):
    """Softmax attention between three linear layers; itself without parameters."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.heads, self.drop = sizes.num_attention_heads, dropout
        self.query = nn.Linear(sizes.hidden_size, sizes.hidden_size)
        self.key = nn.Linear(sizes.hidden_size, sizes.hidden_size)
        self.value = nn.Linear(sizes.hidden_size, sizes.hidden_size)

    def forward(self, asking: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
        parts = (self.query(asking), self.key(hidden), self.value(hidden))
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        drop = self.drop if self.training else 0.0
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=drop)
        return mixed.transpose(1, 2).flatten(2)


class _Dense(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.dense = nn.Linear(sizes.hidden_size, sizes.intermediate_size)
        self.activation = _ACTIVATIONS[sizes.hidden_act]()

    def forward(self, hidden: Tensor) -> Tensor:
        wide: Tensor = self.activation(self.dense(hidden))
        return wide


class _Residual(nn.Module):
    def __init__(self, width: int, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, sizes.hidden_size)
        self.LayerNorm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        normal: Tensor = self.LayerNorm(self.dropout(self.dense(hidden)) + residual)
        return normal


class _Pooler(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.dense = nn.Linear(sizes.hidden_size, sizes.hidden_size)

    def forward(self, first: Tensor) -> Tensor:
        return torch.tanh(self.dense(first))


def _read_checkpoint(folder: Path) -> dict[str, Tensor]:
    safe, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    if safe.is_file():
        return read_safetensors(safe)
    if pickled.is_file():
        raise DataError(
            f"{pickled} is a pickle, which is never loaded here; write model.safetensors beside "
            "it once, where you trust it: safetensors.torch.save_file({n: v.contiguous().clone() "
            "for n, v in torch.load(FILE, weights_only=True).items()}, NEW)"
        )
    raise DataError(f"{folder} has no model.safetensors; {_FOLDER}")


def _renamed(name: str) -> str:
    """A checkpoint's name without the model's, and as of today where it is old."""
    name = name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name
