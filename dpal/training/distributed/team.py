"""How ranks give each other weights, and add up: through torch.distributed.

By Gloo, also between GPUs: vectors are in main memory where they are made and where they go, and a
rank that is lost is noticed at once. Processes of one machine meet on its loopback, where clipped
sums without noise stay. Of several machines they meet so only where the network between them is
declared private, as Gloo seals and proves nothing; otherwise vectors go sealed through the links
that orders take (`sealed_sums`). A sharded model alone, whose layers go from GPU to GPU all the
time, is connected by NCCL, and never beyond one machine.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal.data.process_share import Share
from dpal.errors import ConfigError
from dpal.training.per_record.backend import trainable

if TYPE_CHECKING:
    from dpal.training.distributed.shard_group import ShardGroup

LOOPBACK = "127.0.0.1"
_POLL = 2e-4  # seconds
_MEETING = timedelta(seconds=60)  # all have their records by then, and need only connect


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Where ranks find each other, to exchange vectors.

    Attributes:
      ranks: how many there are.
      file: on this machine, in a folder that only this user can enter; None where ranks are on
        several machines.
      address: host and port of rank 0's store there.
      host: address at which this rank listens for the others.
      own_gpus: whether each rank has a GPU of its own, all of this machine.
    """

    ranks: int
    file: Path | None = None
    address: tuple[str, int] | None = None
    host: str = LOOPBACK
    own_gpus: bool = False


class Sums(Protocol):
    """Vectors of all ranks: weights that rank 0 gives, sums that it gets."""

    def share_weights(self, model: nn.Module, *, watch: Callable[[], None]) -> None:
        """Gives rank 0's trained weights to everyone, exactly as they are."""
        ...

    def add_up(
        self, vector: NDArray[np.float64], *, watch: Callable[[], None]
    ) -> NDArray[np.float64]:
        """Sums the vectors of all ranks in float64; only rank 0 gets the sum."""
        ...

    def close(self) -> None:
        """Lets go of the others without waiting for them."""
        ...


class Team:
    """All ranks, connected; rank 0 is the main process."""

    def __init__(
        self,
        rank: int,
        meeting: Meeting,
        *,
        device: torch.device,
        patience: float,
        store: Any = None,
    ) -> None:
        """Waits until all ranks are there.

        Args:
          rank: of this process.
          meeting: where the others are.
          device: of this rank's model.
          patience: seconds to wait for the others whenever vectors are exchanged.
          store: through which they find each other, where this rank holds it.

        Raises:
          ConnectionError: somebody did not come.
        """
        self._rank, self._meeting, self._device = rank, meeting, device
        self._patience = timedelta(seconds=patience)
        self._interrupted = False
        self._shards: ShardGroup | None = None
        try:
            self._store = _store(meeting) if store is None else store
            self._group = _gloo(self._store, rank, meeting)
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
        flat = flat_weights(model).cpu()
        options = dist.BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        options.timeout = self._patience
        self._finish(self._group.broadcast([flat], options), watch)
        if self._group.rank() > 0:
            set_weights(model, flat)

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
        total = torch.from_numpy(vector.copy())
        options = dist.ReduceOptions()
        options.rootRank, options.reduceOp = 0, dist.ReduceOp.SUM  # type: ignore[assignment]
        options.timeout = self._patience
        self._finish(self._group.reduce([total], options), watch)
        return np.asarray(total.numpy())

    def shard_group(self) -> ShardGroup:
        """All ranks as those that hold parts of a model; once, and until they part.

        Raises:
          ParameterError: this process has another default group of torch's.
        """
        if self._shards is None:
            # It takes two seconds to import, and no other training needs it.
            from dpal.training.distributed.shard_group import ShardGroup

            group, device = self._group, torch.device("cpu")
            if self._meeting.own_gpus:
                group, device = self._nccl(), self._device
            self._shards = ShardGroup(group, self._store, device=device, patience=self._patience)
        return self._shards

    def _nccl(self) -> Any:
        # Where the environment says otherwise (torchrun's children), a group that was aborted would
        # go on with part of a sum. And nothing is to listen where another machine could reach it.
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "3"
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "=lo")
        os.environ.setdefault("NCCL_IB_DISABLE", "1")
        options: Any = dist.ProcessGroupNCCL.Options()
        options._timeout = self._patience  # it connects no earlier than it first sums
        store: Any = dist.PrefixStore("gpus", self._store)  # type: ignore[attr-defined]
        return dist.ProcessGroupNCCL(store, self._rank, self._meeting.ranks, options)

    def close(self) -> None:
        """Lets go of the others without waiting for them."""
        group, self._group = self._group, None
        if group is None:
            return
        if self._shards is not None:
            self._shards.close()
        group.abort()
        if self._interrupted:
            # To be destroyed it would wait, and everybody with it, for what no longer comes: as
            # long as its patience. Its threads end with this process, or when that is over.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))

    def _finish(self, work: Any, watch: Callable[[], None]) -> None:
        # A rank that died would leave a blocking wait hanging until its timeout.
        try:
            while not work.is_completed():
                watch()
                time.sleep(_POLL)
            work.wait()
        except RuntimeError as error:
            raise ConnectionError("a rank does not answer") from error
        except BaseException:
            self._interrupted = True
            raise


def flat_weights(model: nn.Module) -> Tensor:
    """What trains of a model, in one vector (n,)."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in trainable(model)])


def set_weights(model: nn.Module, flat: Tensor) -> None:
    """Sets what trains of a model to what `flat_weights` made of another one."""
    start = 0
    with torch.no_grad():
        for parameter in trainable(model):
            parameter.copy_(flat[start : start + parameter.numel()].reshape(parameter.shape))
            start += parameter.numel()


def network_store(host: str, meeting: Meeting) -> tuple[Any, Meeting]:
    """Opens rank 0's store at one address of this machine, and says where it is.

    Args:
      host: the address, in a network that is private.
      meeting: of all ranks.

    Raises:
      ConfigError: everybody could reach that address.
    """
    address = ipaddress.ip_address(host)
    if address.is_global or address.is_unspecified:
        raise ConfigError.before_release(
            f"runtime.private_network says that the network of {host} is private, and addresses "
            "there are public; name one of a private network (WireGuard, a VLAN) in "
            "runtime.rendezvous, or leave runtime.private_network out, and vectors go sealed"
        ).about("runtime.private_network", "public")
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:
        port = listening.getsockname()[1]
        store: Any = dist.TCPStore(  # type: ignore[attr-defined]
            host,
            port,
            meeting.ranks,
            is_master=True,
            timeout=_MEETING,
            wait_for_workers=False,
            # Left to itself it would listen on every address of this machine.
            master_listen_fd=listening.detach(),
        )
    return store, replace(meeting, address=(host, port), host=host)


def own_gpus(device: torch.device, processes: int) -> bool:
    """Whether each of so many processes of this machine has a GPU of its own."""
    return device.type == "cuda" and torch.cuda.device_count() >= processes


def place(device: torch.device, share: Share) -> torch.device:
    """Device of a rank: a GPU of its own where there are enough, else that of all."""
    if own_gpus(device, share.processes):
        first = device.index or 0
        return torch.device("cuda", (first + share.rank) % torch.cuda.device_count())
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", 0)  # no process can choose a GPU that has no number
    return device


def _store(meeting: Meeting) -> Any:
    if meeting.address is not None:
        host, port = meeting.address
        return dist.TCPStore(  # type: ignore[attr-defined]
            host, port, meeting.ranks, timeout=_MEETING, wait_for_workers=False
        )
    store: Any = dist.FileStore(  # type: ignore[attr-defined]
        str(meeting.file), meeting.ranks
    )
    store.set_timeout(_MEETING)
    return store


def _gloo(store: Any, rank: int, meeting: Meeting) -> Any:
    options: Any = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = _MEETING
    # By default it would listen on the address of the host's name, for others to see.
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=meeting.host)]
    return dist.ProcessGroupGloo(store, rank, meeting.ranks, options)
