"""The state of a training whose model is sharded: written whole by rank 0, kept in rows by all.

What is written has no trace of how many ranks there were: any number of them, or one process that
holds all of the model, can go on from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load
from torch import Tensor

from dpal.training.distributed.messages import StoredTensor, TakeRows
from dpal.training.distributed.shard_group import ShardGroup
from dpal.training.training_state import TrainingState, Written

_BETWEEN = "/"  # of a section and a name, as in checkpoints


class ShardedState:
    """Rows of a training's state that one rank holds.

    Attributes:
      own: the state, whose model is this rank's rows.
    """

    def __init__(self, own: TrainingState, group: ShardGroup) -> None:
        """Takes a rank's own state."""
        self.own, self._group = own, group
        self._buffers = {name for name, _ in own.model.named_buffers()}

    def gather(self, kind: Written) -> dict[str, Tensor]:
        """Puts together what is written down, tensor by tensor; all ranks at the same time.

        Returns:
          Whole tensors by name, on the processor, at rank 0; nothing at other ranks.
        """
        rows = dict(sorted(load(self.own.write(kind)).items()))  # alike on all ranks
        counts = torch.tensor([len(value) if value.dim() else 0 for value in rows.values()])
        whole: dict[str, Tensor] = {}
        for (name, value), count in zip(
            rows.items(), self._group.sums(counts.to(self._group.device)).tolist(), strict=True
        ):
            together = value
            if not self._is_whole(name, value.dim()):
                together = self._group.whole(value.to(self._group.device), count).cpu()
            if self._group.rank == 0:
                whole[name] = together
        return whole

    def scatter(self, order: TakeRows) -> None:
        """Hands out what rank 0 reads from a file, tensor by tensor; all ranks at the same time.

        Args:
          order: the same everywhere.

        Raises:
          ParameterError: the file holds what this training would not take up.
        """
        rows: dict[str, Tensor] = {}
        for name, value in self._from_first(order):
            whole = self._group.from_first(value.to(self._group.device))
            if not self._is_whole(name, whole.dim()):
                whole = whole[self._group.rows(len(whole))].clone()
            rows[name] = whole.cpu()  # whoever takes them puts them where they belong
        self.own.put(order.kind, rows, order.path)

    def _from_first(self, order: TakeRows) -> Iterator[tuple[str, Tensor]]:
        """What rank 0 reads, and room for it elsewhere."""
        if self._group.rank > 0:
            for name, told in order.tensors.items():
                yield name, torch.empty(told.shape, dtype=told.dtype)
            return
        with safe_open(order.path, framework="pt") as stored:
            for name in order.tensors:
                yield name, stored.get_tensor(name)

    def _is_whole(self, name: str, axes: int) -> bool:
        """Whether every rank holds all of it: single numbers, and buffers of the model."""
        section, _, key = name.rpartition(_BETWEEN)
        if section == "committee":
            key = key.partition(".")[2]
        return axes == 0 or (section != "optimizer" and key in self._buffers)


def tensors_of(path: Path) -> dict[str, StoredTensor]:
    """What tensors a file holds, in an order that is the same for all."""
    with safe_open(path, framework="pt") as stored:
        slices = {name: stored.get_slice(name) for name in sorted(stored.keys())}
        return {
            name: StoredTensor(shape=torch.Size(part.get_shape()), dtype=_TYPES[part.get_dtype()])
            for name, part in slices.items()
        }


_TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
