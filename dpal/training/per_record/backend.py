"""What every way to per-record gradients offers, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
"""From logits (n, classes) and targets (n, ...) to one loss per record, shape (n,)."""

Weigh = Callable[[Tensor], Tensor]
"""From squared norms (groups, n) to the weights (groups, n) of the records' gradients.

A norm that is not finite gets weight 0. Whoever weighs may be asked about a batch in parts.
"""


class PerRecordGradients(Protocol):
    """Sums the gradients of a batch's records, each times a weight of its own."""

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """What the sums are the gradients of, in the model's order."""
        ...

    def weighted_sum(
        self, inputs: Tensor, targets: Tensor, *, real: int, copies: int, weigh: Weigh
    ) -> list[Tensor]:
        """Computes one sum over a chunk of records.

        Args:
          inputs: (m * copies, *input_shape); the views of a record stand side by side.
          targets: (m * copies, ...).
          real: the first so many of the m records count; the others fill up the chunk.
          copies: views of each record, whose gradients are averaged.
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
