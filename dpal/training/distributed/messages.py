"""What the processes of a training tell each other, and how they add up.

Orders and answers go through a pair of connected sockets that no other process holds;
vectors go through torch.distributed, between GPUs by NCCL and otherwise by Gloo on the
loopback of this machine. Clipped sums without noise stay on it.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

from dpal.data.process_share import Share
from dpal.data.records import LabeledSet
from dpal.training.per_record.backend import trainable
from dpal.training.train_phase import Work

_POLL = 2e-4  # seconds
_MEETING = timedelta(seconds=60)  # all have their records by then, and need only connect


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
      meeting: where the processes find each other.
      parent: number of the main process.
      patience: seconds that vectors may take on their way.
    """

    share: Share
    load: Loader
    threads: int
    device: torch.device
    meeting: Path
    parent: int
    patience: float


@dataclass(frozen=True, kw_only=True)
class Meet:
    """The order to connect to each other: all have their records."""


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


class Team:
    """All ranks, connected; rank 0 is the main process."""

    def __init__(
        self, share: Share, *, meeting: Path, device: torch.device, patience: float
    ) -> None:
        """Waits until all ranks are there.

        Args:
          share: says who this is, and of how many.
          meeting: a file in a folder that only this user can enter.
          device: of this rank's model.
          patience: seconds to wait for the others whenever vectors are exchanged.

        Raises:
          ConnectionError: somebody did not come.
        """
        store: Any = dist.FileStore(  # type: ignore[attr-defined]
            str(meeting), share.processes
        )
        store.set_timeout(_MEETING)
        direct = by_nccl(device, share.processes)
        self._device = device if direct else torch.device("cpu")
        self._patience = timedelta(seconds=patience)
        try:
            self._group = _nccl(store, share, self._patience) if direct else _gloo(store, share)
        except RuntimeError as error:
            raise ConnectionError("a rank did not come") from error

    def share_weights(self, model: nn.Module, *, watch: Callable[[], None]) -> None:
        """Gives rank 0's trained weights to everyone, exactly as they are.

        Args:
          model: of the same architecture on every rank; frozen parameters are the same.
          watch: called while waiting; raises when waiting makes no sense any more.

        Raises:
          ConnectionError: somebody does not answer.
        """
        parameters = trainable(model)
        flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters]).to(
            self._device
        )
        options = dist.BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        options.timeout = self._patience
        self._finish(self._group.broadcast([flat], options), watch)
        if self._group.rank() == 0:
            return
        start = 0
        with torch.no_grad():
            for parameter in parameters:
                parameter.copy_(flat[start : start + parameter.numel()].reshape(parameter.shape))
                start += parameter.numel()

    def add_up(
        self, vector: NDArray[np.float64], *, watch: Callable[[], None]
    ) -> NDArray[np.float64]:
        """Sums the vectors of all ranks in float64; only rank 0 gets the sum.

        Args:
          vector: (n,), of the same length on every rank.
          watch: as in `share_weights`.

        Raises:
          ConnectionError: somebody does not answer.
        """
        total = torch.from_numpy(vector.copy()).to(self._device)
        options = dist.ReduceOptions()
        options.rootRank, options.reduceOp = 0, dist.ReduceOp.SUM  # type: ignore[assignment]
        options.timeout = self._patience
        self._finish(self._group.reduce([total], options), watch)
        return np.asarray(total.cpu().numpy())

    def close(self) -> None:
        """Lets go of the others without waiting for them."""
        self._group.abort()

    def _finish(self, work: Any, watch: Callable[[], None]) -> None:
        # A rank that died would leave a blocking wait hanging until its timeout.
        try:
            while not work.is_completed():
                watch()
                time.sleep(_POLL)
            work.wait()
        except RuntimeError as error:
            raise ConnectionError("a rank does not answer") from error


def by_nccl(device: torch.device, processes: int) -> bool:
    """Whether vectors go from GPU to GPU: each process has one of its own."""
    enough = device.type == "cuda" and torch.cuda.device_count() >= processes
    return enough and dist.is_nccl_available()


def place(device: torch.device, share: Share) -> torch.device:
    """Device of a rank: a GPU of its own where there are enough, else the one given."""
    if by_nccl(device, share.processes):
        first = device.index or 0
        return torch.device("cuda", (first + share.rank) % torch.cuda.device_count())
    return device


def copy_to(model: nn.Module, device: torch.device) -> nn.Module:
    """A copy of a model on another device."""
    return pickle.loads(pickle.dumps(model)).to(device)  # type: ignore[no-any-return]  # noqa: S301


def _gloo(store: Any, share: Share) -> Any:
    options: Any = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = _MEETING
    # By default it would listen on the address of the host's name, for others to see.
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    return dist.ProcessGroupGloo(store, share.rank, share.processes, options)


def _nccl(store: Any, share: Share, patience: timedelta) -> Any:
    options: Any = dist.ProcessGroupNCCL.Options()
    options._timeout = patience  # it connects no earlier than it first sums
    return dist.ProcessGroupNCCL(store, share.rank, share.processes, options)
