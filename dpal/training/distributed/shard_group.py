"""Ranks that hold parts of one model, and what they exchange through torch.distributed.

What shards models asks for the default group of its process. It is made of ranks that met before
(`team`), connected as they are over loopback, or from GPU to GPU.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _abort_process_group

from dpal.errors import ParameterError

_BACKEND = "dpal"  # torch's name for ranks that are connected already


class ShardGroup:
    """All ranks of a training, of which each holds its rows of every parameter."""

    def __init__(
        self, connected: Any, store: Any, *, device: torch.device, patience: timedelta
    ) -> None:
        """Makes connected ranks the default group of this process.

        Args:
          connected: torch's process group of all ranks.
          store: through which they found each other.
          device: of this rank's model; the processor, or a GPU of its own.
          patience: how long an exchange may take.

        Raises:
          ParameterError: this process has another default group.
        """
        if dist.is_initialized():
            raise ParameterError(
                "this process is one of another torch.distributed group, and a sharded model needs "
                "a group of its own; train in a process that has called no init_process_group"
            )
        self.rank, self.ranks, self.device = connected.rank(), connected.size(), device
        connected._set_default_timeout(patience)
        dist.Backend.register_backend(_BACKEND, lambda *_: connected, devices=[device.type])
        dist.init_process_group(
            _BACKEND,
            store=dist.PrefixStore("shards", store),  # type: ignore[attr-defined]
            rank=self.rank,
            world_size=self.ranks,
            timeout=patience,
        )
        self.mesh = DeviceMesh.from_group(cast(dist.ProcessGroup, dist.group.WORLD), device.type)

    def rows(self, count: int, rank: int | None = None) -> slice:
        """Which of so many rows a rank holds: as many as the others, fewer at the end."""
        each = -(-count // self.ranks)
        first = min((self.rank if rank is None else rank) * each, count)
        return slice(first, min(first + each, count))

    def from_first(self, values: Tensor) -> Tensor:
        """Gives everybody rank 0's values, in place."""
        dist.broadcast(values, src=0)
        return values

    def sum_of_rows(self, values: Tensor) -> Tensor:
        """Adds values (n, ...) of all ranks up, and gives this one its rows of the sum."""
        each = -(-len(values) // self.ranks)
        padded = values.new_zeros(each * self.ranks, *values.shape[1:])
        padded[: len(values)] = values
        own = values.new_empty(each, *values.shape[1:])
        dist.reduce_scatter(own, list(padded.chunk(self.ranks)))
        rows = self.rows(len(values))
        return own[: rows.stop - rows.start]

    def whole(self, rows: Tensor, count: int) -> Tensor:
        """Puts the rows of all ranks together: (count, ...)."""
        each = -(-count // self.ranks)
        padded = rows.new_zeros(each, *rows.shape[1:])
        padded[: len(rows)] = rows
        gathered = rows.new_empty(each * self.ranks, *rows.shape[1:])
        dist.all_gather(list(gathered.chunk(self.ranks)), padded)
        return gathered[:count]

    def sums(self, values: Tensor) -> Tensor:
        """Adds values (n,) of all ranks up, in place, for everybody."""
        dist.all_reduce(values)
        return values

    def total(self, value: float) -> float:
        """Adds a number of every rank up, in float64."""
        return float(self.sums(torch.tensor([value], dtype=torch.float64, device=self.device)))

    def any(self, holds: bool) -> bool:
        """Whether something holds at some rank."""
        return self.total(float(holds)) > 0

    def close(self) -> None:
        """Leaves this process without a default group, and waits for no other."""
        if not dist.is_initialized():
            return
        if self.device.type == "cuda":
            # Destroyed, NCCL would wait for whoever was lost; and whoever aborts what was destroyed
            # corrupts memory (seen with torch 2.11).
            _abort_process_group()
        else:
            dist.destroy_process_group()
