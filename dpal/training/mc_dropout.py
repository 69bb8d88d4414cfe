"""Probabilities of a model under dropout, for models that have no dropout of their own.

Units are dropped from the input of every linear layer. A pass draws one mask per layer,
over its input features, before it meets any record, and all records share it: the result
for a record depends on that record, the model and the masks alone, whatever else is in
its batch. That keeps a score a function of one record (assumption R1 of the guarantee).

Source: Gal & Ghahramani (2016), "Dropout as a Bayesian approximation"; one mask for all
records ("consistent" dropout): Kirsch, van Amersfoort & Gal (2019), "BatchBALD".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal import check
from dpal.data.readers import to_input
from dpal.errors import ParameterError
from dpal.randomness import BitSource
from dpal.training.losses import softmax as softmax
from dpal.training.physical_batches import chunks

Masks = dict[nn.Linear, Tensor]


def draw_masks(
    model: nn.Module, *, passes: int = 20, dropout: float = 0.3, rng: BitSource
) -> Masks:
    """Draws a mask (passes, in_features) for every linear layer.

    Args:
      model: with at least one linear layer.
      passes: number of passes M.
      dropout: chance that a unit is dropped in a pass; the others are scaled up by
        1 / (1 - dropout).
      rng: seeds the masks with one word. Masks are no privacy noise: they are drawn
        without looking at any record and nothing is hidden behind them.

    Raises:
      ParameterError: a number is out of range, or the model has no linear layer, so that
        all passes would agree.

    Source:
      Settings: Schwethelm et al. (2025), 20 passes with dropout 0.3.
    """
    check.at_least(1, passes=passes)
    check.inside(0, 1, dropout=dropout)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise ParameterError(
            "the model has no linear layer to drop inputs of; use an acquisition other than bald"
        )
    # On the CPU whatever the model's device: the same word gives the same masks anywhere.
    generator = torch.Generator().manual_seed(int(rng.words(1)[0]))
    masks = {}
    for layer in layers:
        kept = torch.rand(passes, layer.in_features, generator=generator) >= dropout
        masks[layer] = (kept / (1 - dropout)).to(layer.weight)
    return masks


def mc_probabilities(
    model: nn.Module,
    inputs: Tensor,
    masks: Masks,
    *,
    physical_batch: int,
    to_probabilities: Callable[[Tensor], Tensor] = softmax,
) -> NDArray[np.float64]:
    """Class probabilities in several passes with dropout.

    The model is left as it was found, also after an exception.

    Args:
      model: from records to logits, with at least one linear layer.
      inputs: (n, *input_shape) decoded records, at least one.
      masks: of this model, by `draw_masks`; the same for all records that are compared.
      physical_batch: records per forward pass; changes memory, nothing else.
      to_probabilities: from logits, over the last axis; `probabilities_of` a task.

    Returns:
      (passes, n, classes).

    Raises:
      ParameterError: there is no record, or no room for one.
    """
    check.at_least(1, records=len(inputs), physical_batch=physical_batch)
    passes = len(next(iter(masks.values())))
    device = next(model.parameters()).device
    parts = []
    with _in_evaluation(model), torch.no_grad():
        for rows, chunk in chunks(inputs, physical_batch=physical_batch):
            records = to_input(chunk.to(device))
            logits = [_dropped(model, records, masks, index) for index in range(passes)]
            kept = torch.stack(logits)[:, : rows.stop - rows.start]
            parts.append(to_probabilities(kept.double()).cpu())
    return torch.cat(parts, dim=1).numpy()


def _dropped(model: nn.Module, records: Tensor, masks: Masks, index: int) -> Tensor:
    """Runs one pass; its hooks are gone afterwards."""
    with ExitStack() as hooks:
        for layer, mask in masks.items():
            hooks.enter_context(layer.register_forward_pre_hook(partial(_mask, mask[index])))
        logits: Tensor = model(records)
    return logits


def _mask(mask: Tensor, layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    # Over the last axis only: a layer that meets a record several times (tokens, say)
    # drops the same features each time, and no shape of a batch enters the draw.
    return (arguments[0] * mask, *arguments[1:])


@contextmanager
def _in_evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every module gets its own mode back."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
