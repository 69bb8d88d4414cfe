"""Builds a registered model, with weights that repeat."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from dpal import check
from dpal.errors import ParameterError
from dpal.models.adapters import adapt
from dpal.models.architectures import ARCHITECTURES
from dpal.models.spec import ModelSpec
from dpal.models.weights import load_weights
from dpal.plugins import load_plugins
from dpal.randomness import seeded


@runtime_checkable
class DrawsWeights(Protocol):
    """A layer with parameters of its own kind, which says how they begin."""

    def draw_weights(self, generator: torch.Generator | None) -> None:
        """Draws fresh values for its own parameters, not for those of its children."""


@runtime_checkable
class TrainsInPart(Protocol):
    """A model of which, unless told otherwise, only some parameters train."""

    trained_by_default: tuple[str, ...]
    fresh_parts: tuple[str, ...]
    """Of these the ones that train beside adapters of all others."""


def build_model(spec: ModelSpec) -> nn.Module:
    """Builds a model with repeatable, public initial weights.

    Args:
      spec: a registered name and its shapes; `weights` are read over fresh values, and
        only parameters named in `trainable`, or below a module named there, will train.

    Returns:
      A module from (n, *input_shape) to logits (n, classes), in training mode, whose
      every record is treated apart from the others.

    Raises:
      ParameterError: the name is unknown, the architecture does not take such records, or
        `trainable` names nothing of it.
      DataError: the weights are missing, unreadable, or of another model.
    """
    if spec.name not in ARCHITECTURES:
        load_plugins()  # a process that read no settings, such as a worker or a served model
    check.one_of(ARCHITECTURES, **{"model.name": spec.name})
    model = ARCHITECTURES[spec.name].build(spec)
    draw = seeded(spec.seed, f"weights of {spec.name}")
    generator = torch.Generator().manual_seed(int(draw.integers(2**63)))
    with torch.no_grad():
        for layer in model.modules():
            _draw_weights(layer, generator)
    if spec.weights is not None:
        load_weights(model, Path(spec.weights))
    parts = spec.trainable
    if isinstance(model, TrainsInPart):
        # What stays as it is needs an adapter to change; what begins afresh has to be trained.
        parts = parts or (model.fresh_parts if spec.adapter_rank else model.trained_by_default)
    if spec.adapter_rank:

        def stays(name: str) -> bool:
            return not any(_below(name, part) for part in parts)

        parts += adapt(model, spec.adapted_layers, stays, spec.adapter_rank, generator)
    _freeze_others(model, parts)
    if spec.normalisation is not None:
        spec.normalisation.attach(model)
    return model


def trainable_weights(spec: ModelSpec) -> int:
    """How many numbers of a model train; each of them gets noise."""
    # Others need no weights to have layers; of a text model, its folder says which it has.
    if not ARCHITECTURES[spec.name].reads_texts:
        spec = replace(spec, weights=None)
    model = build_model(spec)
    return sum(each.numel() for each in model.parameters() if each.requires_grad)


def _draw_weights(layer: nn.Module, generator: torch.Generator) -> None:
    """Draws a layer's own weights; those of normalisations begin at 1 and 0 anyway."""
    if isinstance(layer, DrawsWeights):
        layer.draw_weights(generator)
    elif isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
        # torch's own defaults, from a generator of our own.
        nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
        if layer.bias is not None:
            bound = 1 / math.sqrt(layer.weight[0].numel())
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    elif isinstance(layer, nn.Embedding):
        nn.init.normal_(layer.weight, std=0.02, generator=generator)  # as BERT begins
        if layer.padding_idx is not None:
            layer.weight[layer.padding_idx] = 0


def _freeze_others(model: nn.Module, trainable: tuple[str, ...]) -> None:
    """Stops the training of all parameters outside of the named modules, if any is named."""
    names = [name for name, _ in model.named_parameters()]
    for prefix in trainable:
        if not any(_below(name, prefix) for name in names):
            parts = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
            raise ParameterError(
                f"model.trainable names {prefix!r}, which no parameter begins with; the model's "
                f"parts are {parts}"
            )
    if trainable:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(any(_below(name, prefix) for prefix in trainable))


def _below(name: str, prefix: str) -> bool:
    """Whether a parameter is the named one or below it: layer.1 is not above layer.11."""
    return f"{name}.".startswith(prefix.removesuffix(".") + ".")
