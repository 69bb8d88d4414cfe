"""What the processes of a training on one machine tell each other.

Orders and answers go through a pair of connected sockets that no other process holds. Ranks on
other machines are told the same in words that hold no code (`remote_messages`).
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch
from torch import nn

from dpal.data.process_share import Share
from dpal.data.records import LabeledSet
from dpal.training.distributed.team import Meeting
from dpal.training.train_phase import Work


class Loader(Protocol):
    """Loads the records of a share; sent to other processes, so made of what pickle can send."""

    def __call__(self, *, share: Share) -> LabeledSet:
        """The records that `share` owns, and no other."""
        ...


@dataclass(frozen=True, kw_only=True)
class LoadRecords:
    """The first order: whose records to load.

    Attributes:
      share: of the one who is told.
      load: loads it.
      threads: of torch.
      device: to compute on.
      parent: number of the main process.
      patience: seconds that vectors may take on their way.
    """

    share: Share
    load: Loader
    threads: int
    device: torch.device
    parent: int
    patience: float


@dataclass(frozen=True, kw_only=True)
class Meet:
    """The order to connect to each other: all have their records.

    Attributes:
      meeting: where.
    """

    meeting: Meeting


@dataclass(frozen=True, kw_only=True)
class Job:
    """The order to begin with a phase, or with what is left of it.

    Attributes:
      model: on the CPU.
      work: what everyone does.
    """

    model: nn.Module
    work: Work


@dataclass(frozen=True, kw_only=True)
class ComputeClippedSum:
    """The order to take the weights and give a clipped sum.

    Attributes:
      bound: of every record's gradient.
    """

    bound: float


def send(link: Connection, message: object) -> None:
    """Sends anything that pickle can; tensors as copies, never as shared memory."""
    link.send_bytes(pickle.dumps(message))


def receive_message(link: Connection) -> Any:
    """Waits for a message.

    Raises:
      EOFError: the other side is gone.
    """
    # Both ends are held by the main process and the helper that it started, by nobody else.
    return pickle.loads(link.recv_bytes())  # noqa: S301


def copy_to(model: nn.Module, device: torch.device) -> nn.Module:
    """A copy of a model on another device."""
    return pickle.loads(pickle.dumps(model)).to(device)  # type: ignore[no-any-return]  # noqa: S301
