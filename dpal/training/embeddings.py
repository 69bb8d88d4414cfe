"""Embeddings: what a released model makes of a record just before its logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal.data.decoded_ahead import decoded_ahead
from dpal.data.readers import apply_extractor, raw_batches, to_input
from dpal.data.sources import Source
from dpal.errors import ParameterError
from dpal.training.physical_batches import chunks

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EmbeddedBatch:
    """Consecutive rows of a source as a model sees them. Of private records: private.

    Attributes:
      rows: (n,) positions among the rows of the source.
      embeddings: (n, width) inputs of the model's last layer.
      logits: (n, classes).
    """

    rows: NDArray[np.int64]
    embeddings: Floats
    logits: Floats

    def __repr__(self) -> str:
        return "EmbeddedBatch(maybe private)"  # wherever it might be printed or logged


def last_layer(model: nn.Module, *, classes: int) -> nn.Linear:
    """The layer that gives the logits.

    Raises:
      ParameterError: the model does not end in a linear layer of that many outputs.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers or layers[-1].out_features != classes:
        raise ParameterError(
            f"the model does not end in a linear layer of {classes} outputs, whose inputs would be "
            "its embeddings; use another model.name"
        )
    return layers[-1]


def embed(
    model: nn.Module, inputs: Tensor, *, classes: int, physical_batch: int
) -> tuple[Floats, Floats]:
    """Embeddings (n, width) and logits (n, classes) of decoded records, in float64.

    Args:
      model: from records to logits; a record's row depends on that record alone.
      inputs: (n, *input_shape) decoded records.
      classes: number of logits.
      physical_batch: records per forward pass.

    Raises:
      ParameterError: the model has no last linear layer.
    """
    caught: list[Tensor] = []
    layer = last_layer(model, classes=classes)
    handle = layer.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
    device = next(model.parameters()).device
    model.eval()
    embeddings, logits = [], []
    try:
        with torch.no_grad():
            for rows, chunk in chunks(inputs, physical_batch=physical_batch):
                count = rows.stop - rows.start
                logits.append(model(to_input(chunk.to(device)))[:count].double().cpu())
                embeddings.append(caught.pop()[:count].double().cpu().flatten(1))
    finally:
        handle.remove()
    return torch.cat(embeddings).numpy(), torch.cat(logits).numpy()


def embedded(
    source: Source, model: nn.Module, *, classes: int, physical_batch: int
) -> Iterator[EmbeddedBatch]:
    """Streams a source through a model; memory holds two batches, however long the file.

    Raises:
      DataError: a record cannot be read.
      ParameterError: the model has no last linear layer.
    """
    for batch, decoded in decoded_ahead(source, raw_batches(source, [source.content.value])):
        inputs = apply_extractor(source, decoded)
        yield EmbeddedBatch(
            batch.rows, *embed(model, inputs, classes=classes, physical_batch=physical_batch)
        )


def embedding_width(model: nn.Module, *, classes: int) -> int:
    """Width of a model's embeddings."""
    return last_layer(model, classes=classes).in_features
