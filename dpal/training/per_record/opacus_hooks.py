"""Per-record gradients by Opacus: the yardstick, selectable."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn

from dpal.training.per_record.backend import (
    Copies,
    Loss,
    Stretch,
    Weigh,
    broken_records,
    mean_losses,
    slices,
    stretches_of,
    trainable,
    zero_rows,
)
from dpal.training.per_record.functional import grouped_squares

_ROWS_AT_ONCE = 64  # turned into float64 at a time: memory for these alone


class OpacusHooks:
    """Per-record gradients by the hooks of Opacus; see `PerRecordGradients`.

    Weighing and summing are ours: Opacus lets one record with a NaN gradient turn all
    parameters into NaN.
    """

    def __init__(self, model: nn.Module, *, loss: Loss, groups: Sequence[int]) -> None:
        """Puts hooks on a model that treats records apart; for the rest see `BookKeeping`."""
        self.parameters = trainable(model)
        self._loss, self._groups = loss, list(groups)
        self._hooked = GradSampleModule(model, loss_reduction="sum")

    def weighted_sum(
        self, inputs: Tensor, targets: Tensor, *, real: int, copies: Copies, weigh: Weigh
    ) -> list[Tensor]:
        """See `PerRecordGradients`."""
        stretches = stretches_of(copies, len(inputs))
        self._backward(inputs, targets, stretches)
        gradients = [
            _by_record(p.grad_sample, stretches)[:real]  # type: ignore[attr-defined]
            for p in self.parameters
        ]
        squared = grouped_squares(gradients, self._groups)
        broken = broken_records(squared)
        weights = weigh(squared).masked_fill(broken, 0.0).double()
        return [
            _weighted(weights[group], zero_rows(gradient, broken))
            for group, gradient in zip(self._groups, gradients, strict=True)
        ]

    def close(self) -> None:
        """Takes the hooks off the model."""
        self._hooked.remove_hooks()
        for parameter in self.parameters:  # the library's own way trips over frozen ones
            del parameter.grad_sample  # type: ignore[attr-defined]

    def _backward(self, inputs: Tensor, targets: Tensor, stretches: tuple[Stretch, ...]) -> None:
        for parameter in self.parameters:
            parameter.grad = None
            parameter.grad_sample = None  # type: ignore[attr-defined]
        with warnings.catch_warnings():
            # Hooks on the first layer, whose input needs no gradient: as intended.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            losses = self._loss(self._hooked(inputs), targets)
            torch.autograd.backward(mean_losses(losses, stretches))


def _by_record(gradients: Tensor, stretches: tuple[Stretch, ...]) -> Tensor:
    """Gradients (rows, ...) added up over the rows of each record."""
    parts = [
        gradients[rows].reshape(stretch.records, stretch.copies, *gradients.shape[1:]).sum(dim=1)
        for stretch, _, rows in slices(stretches)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _weighted(weights: Tensor, gradients: Tensor) -> Tensor:
    """Sums (n, ...) float32 gradients with float64 weights, a few at a time."""
    total = torch.zeros(gradients.shape[1:], dtype=torch.float64, device=gradients.device)
    for start in range(0, len(gradients), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        total += torch.tensordot(weights[rows], gradients[rows].double(), 1)
    return total
