"""The state of a training whose model is sharded, as the process that leads it writes it down."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from safetensors.torch import save

from dpal.training.distributed.messages import GiveRows, TakeRows
from dpal.training.distributed.sharded_state import tensors_of
from dpal.training.distributed.sharded_training import ShardedTraining
from dpal.training.training_state import Written

Telling = Callable[[TakeRows | GiveRows], AbstractContextManager[None]]
"""Tells all other ranks what everybody does together within the `with` block."""


class LeadingState:
    """See `TrainingState`; files hold all of it, and this process no more than its rows.

    Attributes:
      model: what computes, with all other ranks.
      optimizer: over this process' rows.
      average: of these.
      clipper: carries an adaptive bound.
      committee: members for the next selection, in rows.
    """

    def __init__(self, training: ShardedTraining, telling: Telling) -> None:
        """Takes rank 0's part of a training."""
        own = training.state.own
        self.model, self.optimizer = training.model.model, own.optimizer
        self.average, self.clipper, self.committee = own.average, own.clipper, own.committee
        self._state, self._telling = training.state, telling

    def write(self, kind: Written) -> bytes:
        """Gives one kind of what is written down, put together from all ranks.

        Raises:
          ProcessLost: a helper ended; nothing was written.
        """
        with self._telling(GiveRows(kind=kind)):
            return save(self._state.gather(kind))

    def restore(self, kind: Written, path: Path) -> None:
        """Hands what was written to a file out to all ranks.

        Raises:
          ParameterError: the file holds what this training would not take up, or another average.
          ProcessLost: a helper ended.
        """
        order = TakeRows(kind=kind, path=path, tensors=tensors_of(path))
        with self._telling(order):
            self._state.scatter(order)
