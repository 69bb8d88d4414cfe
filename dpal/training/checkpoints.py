"""A training's state as tensors in one file.

Everything here was computed from noisy gradients, so it is as private as the released
model. What noise or batches are drawn from is no part of it: whoever resumes draws anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path

import torch
from safetensors.torch import load, load_file, save
from torch import Tensor, nn

from dpal.errors import ParameterError
from dpal.training.clipping import Clipper
from dpal.training.committee import Committee
from dpal.training.optimizers import restore_state, state_tensors
from dpal.training.weight_averaging import WeightAverage

_MODEL, _OPTIMIZER, _AVERAGE, _CLIPPER = "model", "optimizer", "average", "clipper"
_COMMITTEE = "committee"
_SECTIONS = {_MODEL, _OPTIMIZER, _AVERAGE, _CLIPPER, _COMMITTEE}
_BETWEEN = "/"  # of a section and a tensor's name, which has dots


def pack_state(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage | None = None,
    clipper: Clipper | None = None,
    committee: Committee | None = None,
) -> bytes:
    """Writes, in mid-phase, all that was computed so far, as safetensors."""
    return _pack(
        {
            _MODEL: model.state_dict(),
            _OPTIMIZER: state_tensors(optimizer),
            _AVERAGE: {} if average is None else average.state(),
            _CLIPPER: {} if clipper is None else clipper.state(),
            _COMMITTEE: {} if committee is None else committee.state(),
        }
    )


def restore_training(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage | None = None,
    clipper: Clipper | None = None,
    committee: Committee | None = None,
) -> None:
    """Puts back what `pack_state` wrote, in place.

    Raises:
      ParameterError: the file holds more than was asked for; going on without the rest would
        be another training than the planned one.
    """
    put_training(load_file(path), path, model, optimizer, average, clipper, committee)


def put_training(
    stored: Mapping[str, Tensor],
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage | None = None,
    clipper: Clipper | None = None,
    committee: Committee | None = None,
) -> None:
    """Does what `restore_training` does, with tensors that were read from a file."""
    wanted = {_MODEL, _OPTIMIZER}
    wanted |= {_AVERAGE} if average is not None else set()
    wanted |= {_CLIPPER} if clipper is not None and clipper.adaptive else set()
    wanted |= {_COMMITTEE} if committee is not None else set()
    sections = _unpack(stored, path, wanted)
    if average is not None:
        average.restore(sections[_AVERAGE])
    if clipper is not None:
        clipper.restore(sections[_CLIPPER])
    if committee is not None:
        committee.restore(sections[_COMMITTEE])
    model.load_state_dict(sections[_MODEL])
    restore_state(optimizer, sections[_OPTIMIZER])


def pack_carried(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage,
    clipper: Clipper,
    committee: Committee | None = None,
) -> bytes:
    """Writes what the next phase takes up beside the released model.

    Where that one is an average, training goes on from the last, raw weights instead. Where the
    next selection asks a committee, its members are there, too.
    """
    return _pack(
        {
            _MODEL: model.state_dict() if average.averages else {},
            _OPTIMIZER: state_tensors(optimizer),
            _AVERAGE: average.carried(),
            _CLIPPER: clipper.state(),
            _COMMITTEE: {} if committee is None else committee.state(),
        }
    )


def restore_carried(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage,
    clipper: Clipper,
) -> None:
    """Puts back what `pack_carried` wrote, in place, over the released weights.

    Raises:
      ParameterError: the file holds what this version does not know, or another average.
    """
    put_carried(load_file(path), path, model, optimizer, average, clipper)


def put_carried(
    stored: Mapping[str, Tensor],
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage,
    clipper: Clipper,
) -> None:
    """Does what `restore_carried` does, with tensors that were read from a file."""
    sections = _unpack(stored, path, _SECTIONS)
    if sections[_AVERAGE]:
        average.restore(sections[_AVERAGE])
    clipper.restore(sections[_CLIPPER])
    if sections[_MODEL]:
        model.load_state_dict(sections[_MODEL])
    restore_state(optimizer, sections[_OPTIMIZER])


def latest_weights(released: Path, carried: Path) -> bytes:
    """Weights that a later campaign trains on from, as safetensors.

    Args:
      released: the model.
      carried: by `pack_carried`; holds the raw weights where the model is an average.
    """
    prefix = f"{_MODEL}{_BETWEEN}"
    stored = load_file(carried).items()
    raw = {name.removeprefix(prefix): tensor for name, tensor in stored if name.startswith(prefix)}
    return save(raw) if raw else released.read_bytes()


def carried_committee(carried: bytes) -> dict[str, Tensor]:
    """The committee that a finished phase left, by `pack_carried`; nothing where there is none."""
    prefix = f"{_COMMITTEE}{_BETWEEN}"
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in load(carried).items()
        if name.startswith(prefix)
    }


def _unpack(
    stored: Mapping[str, Tensor], path: Path, wanted: Set[str]
) -> dict[str, dict[str, Tensor]]:
    """Sorts tensors of a file by sections; one that nobody would take up is refused."""
    sections: dict[str, dict[str, Tensor]] = {name: {} for name in _SECTIONS}
    for key, value in stored.items():
        section, _, name = key.partition(_BETWEEN)
        if section not in wanted:
            raise ParameterError(
                f"{path} holds {section!r}, which this version of dpal cannot take up; go on "
                "with the version that wrote it, nothing was lost"
            )
        sections[section][name] = value
    return sections


def _pack(sections: Mapping[str, Mapping[str, Tensor]]) -> bytes:
    """Every section's tensors under its name; a new section is a new entry here."""
    return save(
        {
            f"{section}{_BETWEEN}{name}": value.detach().cpu().clone().contiguous()
            for section, tensors in sections.items()
            for name, value in tensors.items()
        }
    )
