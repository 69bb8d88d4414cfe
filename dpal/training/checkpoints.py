"""A training's state as tensors in one file, and when it is persisted.

Everything here was computed from noisy gradients, so it is as private as the released
model. What noise or batches are drawn from is no part of it: whoever resumes draws anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from dpal import check
from dpal.errors import ParameterError
from dpal.training.optimizers import restore_state, state_tensors

_MODEL, _OPTIMIZER = "model", "optimizer"
_BETWEEN = "/"  # of a section and a tensor's name, which has dots


class Cadence:
    """Says when training should persist its state: by the clock, or after so many steps.

    The clock sees how long batches take, and their sizes are secret; but so does everybody
    who watches the progress bar, and the steps at which a state is persisted cost nothing.
    """

    def __init__(
        self,
        *,
        minutes: float,
        steps: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts counting now.

        Args:
          minutes: between two checkpoints, at most by one step more.
          steps: between two checkpoints, or None.
          clock: seconds since some moment.
        """
        check.positive(checkpoint_minutes=minutes)
        check.at_least(1, checkpoint_steps=1 if steps is None else steps)
        self._seconds, self._steps, self._clock = 60 * minutes, steps, clock
        self._last = clock()

    def due(self, done: int) -> bool:
        """Whether to persist after the given number of steps; then it starts counting again."""
        by_steps = self._steps is not None and done % self._steps == 0
        if not by_steps and self._clock() - self._last < self._seconds:
            return False
        self._last = self._clock()
        return True


def pack_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> bytes:
    """Writes weights and optimizer state as safetensors."""
    return _pack({_MODEL: model.state_dict(), _OPTIMIZER: state_tensors(optimizer)})


def restore_training(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Puts back what `pack_state` wrote, in place.

    Raises:
      ParameterError: the file holds more than weights and optimizer state; going on without
        the rest would be another training than the planned one.
    """
    sections: dict[str, dict[str, Tensor]] = {_MODEL: {}, _OPTIMIZER: {}}
    for key, value in load_file(path).items():
        section, _, name = key.partition(_BETWEEN)
        if section not in sections:
            raise ParameterError(
                f"{path} holds {section!r}, which this version of dpal cannot take up; go on "
                "with the version that wrote it, nothing was lost"
            )
        sections[section][name] = value
    model.load_state_dict(sections[_MODEL])
    restore_state(optimizer, sections[_OPTIMIZER])


def _pack(sections: Mapping[str, Mapping[str, Tensor]]) -> bytes:
    """Every section's tensors under its name; a new section is a new entry here."""
    return save(
        {
            f"{section}{_BETWEEN}{name}": value.detach().cpu().clone().contiguous()
            for section, tensors in sections.items()
            for name, value in tensors.items()
        }
    )
