"""What every way to per-record gradients offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
"""From logits (n, classes) and targets (n, ...) to one loss per record, shape (n,)."""

Weigh = Callable[[Tensor], Tensor]
"""From squared norms (groups, n) to the weights (groups, n) of the records' gradients.

A norm that is not finite gets weight 0. Whoever weighs may be asked about a batch in parts.
"""


@dataclass(frozen=True)
class Stretch:
    """Neighbouring records of a chunk that have equally many rows each.

    Rows of a record are its views, or, where a person's records count as one, the views of all of
    them: what is measured and weighed is the mean of their gradients.

    Attributes:
      records: how many there are.
      copies: rows of each, side by side.
    """

    records: int
    copies: int


Copies = int | tuple[Stretch, ...]
"""Rows of each record of a chunk: equally many of all, or stretch by stretch."""


def stretches_of(copies: Copies, rows: int) -> tuple[Stretch, ...]:
    """The stretches of a chunk of so many rows."""
    return (Stretch(rows // copies, copies),) if isinstance(copies, int) else copies


def stretches_by_size(sizes: Iterable[int]) -> tuple[Stretch, ...]:
    """Stretches of neighbours of equal size.

    >>> stretches_by_size([1, 1, 3])
    (Stretch(records=2, copies=1), Stretch(records=1, copies=3))
    """
    return tuple(Stretch(len(list(alike)), size) for size, alike in groupby(sizes))


def slices(stretches: Iterable[Stretch]) -> Iterator[tuple[Stretch, slice, slice]]:
    """Yields each stretch with its slice of the records, and of the rows."""
    record = row = 0
    for stretch in stretches:
        after, last = record + stretch.records, row + stretch.records * stretch.copies
        yield stretch, slice(record, after), slice(row, last)
        record, row = after, last


def records_of_rows(stretches: Iterable[Stretch]) -> Tensor:
    """The record of each row, shape (rows,)."""
    parts = [
        torch.arange(records.start, records.stop).repeat_interleave(stretch.copies)
        for stretch, records, _ in slices(stretches)
    ]
    return torch.cat(parts)


def mean_losses(losses: Tensor, stretches: Iterable[Stretch]) -> Tensor:
    """The sum over records of the mean loss (rows,) of each."""
    parts = [losses[rows].sum() / stretch.copies for stretch, _, rows in slices(stretches)]
    return torch.stack(parts).sum()


class PerRecordGradients(Protocol):
    """Sums the gradients of a batch's records, each times a weight of its own."""

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """What the sums are the gradients of, in the model's order."""
        ...

    def weighted_sum(
        self, inputs: Tensor, targets: Tensor, *, real: int, copies: Copies, weigh: Weigh
    ) -> list[Tensor]:
        """Computes one sum over a chunk of records.

        Args:
          inputs: (rows, *input_shape); the rows of a record stand side by side.
          targets: (rows, ...).
          real: the first so many of the m records count; the others fill up the chunk.
          copies: rows of each record, whose gradients are averaged.
          weigh: decides the weights when all norms are known. A record whose squared norm
            is not finite gets weight 0, and its values reach no sum.

        Returns:
          For each parameter the sum over records of weight times gradient, in its shape,
          float32 or float64.
        """
        ...

    def close(self) -> None:
        """Leaves the model as it was found."""
        ...


def broken_records(squared: Tensor) -> Tensor:
    """Which records' squared norms (groups, n) are not all finite, (n,)."""
    return ~squared.isfinite().all(dim=0)


def zero_rows(values: Tensor, broken: Tensor) -> Tensor:
    """Values (n, ...) with the rows of broken records set to 0: 0 * NaN would be NaN."""
    return values.masked_fill(broken.reshape(-1, *[1] * (values.dim() - 1)), 0.0)


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that train, in the model's order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
