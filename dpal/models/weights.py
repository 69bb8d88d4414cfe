"""Puts public pretrained weights into a model.

Public means: trained on nothing that a campaign protects. That cannot be checked here, and
the guarantee says nothing about records that a starting point was made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from dpal.errors import DataError


@runtime_checkable
class LoadsWeights(Protocol):
    """A model that knows more kinds of weights than safetensors of its own names."""

    def load_pretrained(self, path: Path, /) -> None:
        """Takes up the weights in a local file or folder."""


def load_weights(model: nn.Module, path: Path) -> None:
    """Puts public weights into a model, in place.

    Args:
      model: of any architecture; one that has a `load_pretrained` uses that.
      path: a local .safetensors file with the model's parameter names.

    Raises:
      DataError: the file is missing, unreadable, or of another model.
    """
    if isinstance(model, LoadsWeights):
        model.load_pretrained(path)
    else:
        put_weights(model, read_safetensors(path), path)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Reads a .safetensors file.

    Raises:
      DataError: it is missing or unreadable.
    """
    if not path.is_file():
        raise DataError(f"{path} is not there: model.weights takes a local file of public weights")
    try:
        return load_file(path)
    except SafetensorError as problem:
        raise DataError(
            f"{path} is no safetensors file ({problem}); model.weights takes one with the names "
            "of the model's parameters"
        ) from problem


def put_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Copies tensors into a model's parameters, all of them or none.

    Only the classifier, the last linear layer, may be missing or of another size: it then
    stays as it is.

    Args:
      model: takes the values up.
      weights: {parameter name: value}.
      path: where they are from, for messages.

    Raises:
      DataError: a tensor is missing, too many, of another shape, or not finite.
    """
    own = model.state_dict()
    last = next((n for n, m in reversed([*model.named_modules()]) if isinstance(m, nn.Linear)), "")
    classifier = {name for name in own if name.startswith(f"{last}.")} if last else set()
    if any(name not in weights or weights[name].shape != own[name].shape for name in classifier):
        weights = {name: value for name, value in weights.items() if name not in classifier}
        wanted = set(own) - classifier
    else:
        wanted = set(own)
    advice = (
        "only the last layer may differ, choose the model.name and data that the weights were made "
        "for, or leave model.weights out"
    )
    _refuse_others(own, weights, wanted, path, advice=advice)
    with torch.no_grad():
        for name in weights:
            own[name].copy_(weights[name])


def _refuse_others(
    own: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    wanted: set[str],
    path: Path,
    *,
    advice: str,
) -> None:
    """Says the first thing that does not fit."""
    said = "" if weights else "it holds nothing that the model knows"
    for name in sorted(wanted - weights.keys()):
        said = said or f"it lacks {name}"
    for name in sorted(weights.keys() - wanted):
        said = said or f"it has {name}, which the model lacks"
    for name, value in weights.items():
        if said:
            break
        if value.shape != own[name].shape:
            asked, given = tuple(own[name].shape), tuple(value.shape)
            said = f"its {name} has shape {given}, the model's {asked}"
        elif not torch.isfinite(value).all():
            said = f"its {name} holds values that are not finite"
    if said:
        raise DataError(f"{path} does not fit the model: {said}; {advice}")


def put_all_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Copies every tensor of a model out of a file; what else is there stays unused.

    Args:
      model: takes the values up.
      weights: {name: value}.
      path: where they are from, for messages.

    Raises:
      DataError: one of the model's is missing, of another shape, or not finite.
    """
    own = model.state_dict()
    known = {name: weights[name] for name in own if name in weights}
    advice = "name the model that they were made for in data.backbone, or save them anew with it"
    _refuse_others(own, known, set(own), path, advice=advice)
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(weights[name])
