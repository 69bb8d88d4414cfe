"""Where the sum of a step's gradients is added up: by default in a process that holds the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from dpal.data.labeled_records import Batch
from dpal.planning.training_recipe import Precision
from dpal.training.backend_names import Backend
from dpal.training.per_record.backend import Copies, Loss, PerRecordGradients, Weigh, trainable
from dpal.training.per_record.choose_backend import per_record_gradients

Part = tuple[slice, Tensor, list[int] | None]
"""Which rows of a batch a chunk holds, the chunk, and the sizes of its groups, where there are."""


class GradientLayout(Protocol):
    """What of a model's gradient a process sums, and how."""

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """What this process adds noise to and steps, in the model's order."""
        ...

    def passes(self, parts: Iterable[Part], inputs: Batch) -> Iterable[Part]:
        """The chunks of a batch, as many as everybody passes through the model together."""
        ...

    def engine(
        self,
        *,
        backend: Backend,
        loss: Loss,
        groups: Sequence[int],
        precision: Precision,
        like: Tensor,
        targets: Tensor,
    ) -> PerRecordGradients:
        """What computes gradients of single records, as `per_record_gradients` says."""
        ...

    def add(
        self,
        total: Tensor,
        engine: PerRecordGradients,
        inputs: Tensor,
        targets: Tensor,
        *,
        real: int,
        copies: Copies,
        weigh: Weigh,
    ) -> None:
        """Adds the weighted sum over a chunk, as `PerRecordGradients` says, to `total` (n,)."""
        ...


class WholeModel:
    """All of a model, in this process; see `GradientLayout`."""

    def __init__(self, model: nn.Module) -> None:
        """Takes a model that treats records apart."""
        self.parameters = trainable(model)
        self._model = model

    def passes(self, parts: Iterable[Part], inputs: Batch) -> Iterable[Part]:
        """See `GradientLayout`."""
        return parts

    def engine(
        self,
        *,
        backend: Backend,
        loss: Loss,
        groups: Sequence[int],
        precision: Precision,
        like: Tensor,
        targets: Tensor,
    ) -> PerRecordGradients:
        """See `GradientLayout`."""
        if like.dim() == 4 and backend is Backend.BOOK_KEEPING:
            # Convolutions and patches read all channels of a pixel together.
            nn.utils.convert_conv2d_weight_memory_format(self._model, torch.channels_last)
        return per_record_gradients(
            self._model,
            backend=backend,
            loss=loss,
            groups=groups,
            precision=precision,
            like=like,
            targets=targets,
        )

    def add(
        self,
        total: Tensor,
        engine: PerRecordGradients,
        inputs: Tensor,
        targets: Tensor,
        *,
        real: int,
        copies: Copies,
        weigh: Weigh,
    ) -> None:
        """See `GradientLayout`."""
        sums = engine.weighted_sum(inputs, targets, real=real, copies=copies, weigh=weigh)
        total += torch.cat([part.reshape(-1) for part in sums])
