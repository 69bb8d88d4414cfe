"""What the processes of a training on one machine tell each other.

Orders and answers go through a pair of connected sockets that no other process holds. Ranks on
other machines are told the same in words that hold no code (`remote_messages`).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from dpal.data.labeled_records import LabeledSet
from dpal.data.process_share import Share
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.training_recipe import Recipe
from dpal.training.distributed.team import Meeting
from dpal.training.train_phase import Work
from dpal.training.training_state import Written


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
      model: on the CPU; None where it is sharded, and everybody has their rows.
      work: what everyone does.
    """

    model: nn.Module | None
    work: Work


@dataclass(frozen=True, kw_only=True)
class ShardModel:
    """The order to hold some rows of a model, and of all that is trained with it.

    Attributes:
      model: without weights; these come parameter by parameter.
      spec: its optimizer.
      recipe: clipping and averaging.
      steps: of the phase.
      committee: whether the next selection asks one.
    """

    model: nn.Module
    spec: OptimizerSpec
    recipe: Recipe
    steps: int
    committee: bool


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """What is known of a tensor before it comes: its shape, and its type."""

    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class TakeRows:
    """The order to take rows of what rank 0 reads from a file.

    Attributes:
      kind: of what was written there.
      path: of the file, for messages.
      tensors: what comes, in order.
    """

    kind: Written
    path: Path
    tensors: Mapping[str, StoredTensor]


@dataclass(frozen=True, kw_only=True)
class GiveRows:
    """The order to give rows of what rank 0 writes down.

    Attributes:
      kind: of what is written.
    """

    kind: Written


@dataclass(frozen=True, kw_only=True)
class ComputeClippedSum:
    """The order to take the weights and give a clipped sum; of rows, to add noise and step them.

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
