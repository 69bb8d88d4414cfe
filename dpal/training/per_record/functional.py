"""Per-record gradients of the whole model by torch.func: slow, and right for any model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpal.training.per_record.backend import (
    Copies,
    Loss,
    Weigh,
    broken_records,
    slices,
    stretches_of,
    trainable,
    zero_rows,
)

_RECORDS_AT_ONCE = 32  # gradients of so many records are in memory together


class Functional:
    """Per-record gradients by vmap over grad; see `PerRecordGradients`."""

    def __init__(self, model: nn.Module, *, loss: Loss, groups: Sequence[int]) -> None:
        """Takes a model that treats records apart; for the rest see `BookKeeping`."""
        self.parameters = trainable(model)
        self._model, self._loss, self._groups = model, loss, list(groups)
        numbers = {id(p): i for i, p in enumerate(self.parameters)}
        self._names = {
            name: numbers[id(p)] for name, p in model.named_parameters() if p.requires_grad
        }

    def weighted_sum(
        self, inputs: Tensor, targets: Tensor, *, real: int, copies: Copies, weigh: Weigh
    ) -> list[Tensor]:
        """See `PerRecordGradients`."""
        sums = [torch.zeros(p.shape, dtype=torch.float64, device=p.device)
                for p in self.parameters]  # fmt: skip
        for stretch, records, rows in slices(stretches_of(copies, len(inputs))):
            count = min(records.stop, real) - records.start
            for start in range(0, count, _RECORDS_AT_ONCE):
                last = min(start + _RECORDS_AT_ONCE, count)
                views = slice(
                    rows.start + start * stretch.copies, rows.start + last * stretch.copies
                )
                gradients = self.per_record(inputs[views], targets[views], copies=stretch.copies)
                squared = grouped_squares(gradients, self._groups)
                broken = broken_records(squared)
                weights = weigh(squared).masked_fill(broken, 0.0).double()
                for number, gradient in enumerate(gradients):
                    whole = zero_rows(gradient, broken).double()
                    sums[number] += torch.tensordot(weights[self._groups[number]], whole, 1)
        return sums

    def per_record(self, inputs: Tensor, targets: Tensor, *, copies: int = 1) -> list[Tensor]:
        """Every record's gradient, for each parameter (n, *shape)."""
        own = {name: p.detach() for name, p in self._model.named_parameters()}
        training = {name: own[name] for name in self._names}
        others = {name: value for name, value in own.items() if name not in training}

        def loss(parameters: dict[str, Tensor], views: Tensor, wanted: Tensor) -> Tensor:
            logits = torch.func.functional_call(self._model, {**others, **parameters}, (views,))
            return self._loss(logits, wanted).sum() / copies

        shape = (len(inputs) // copies, copies)
        each = torch.func.vmap(
            torch.func.grad(loss), in_dims=(None, 0, 0), randomness="different"
        )(
            training,
            inputs.reshape(*shape, *inputs.shape[1:]),
            targets.reshape(*shape, *targets.shape[1:]),
        )  # fmt: skip
        gradients: list[Tensor] = [torch.empty(0)] * len(self.parameters)
        for name, number in self._names.items():
            gradients[number] = each[name]
        return gradients

    def close(self) -> None:
        """Nothing was put on the model."""


def grouped_squares(gradients: Sequence[Tensor], groups: Sequence[int]) -> Tensor:
    """Squared norms (groups, n) of gradients (n, *shape), one for each parameter."""
    squared = gradients[0].new_zeros(max(groups) + 1, len(gradients[0]))
    for group, gradient in zip(groups, gradients, strict=True):
        squared[group] += gradient.reshape(len(gradient), -1).square().sum(dim=1)
    return squared
