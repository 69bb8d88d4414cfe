"""Rules for fully connected layers and embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpal.training.per_record.layer_rule import (
    GHOST,
    INSTANTIATE,
    KEEP,
    Rule,
)
from dpal.training.per_record.norms_and_sums import (
    PerRecord,
    SquaredNorms,
    at_once,
    gram_product,
    measured,
    room_of_sums,
    weigh_records,
)


class LinearRule(Rule):
    """nn.Linear on (..., in_features), one position or many.

    Source:
      One position: Goodfellow (2015), "Efficient per-example gradient computations".
      Many: Li, Tramer, Liang & Hashimoto (2022), "Large language models can be strong
      differentially private learners", Sec. 4 (ghost clipping).
    """

    def per_record(self, inputs: Tensor, grads: Tensor, records: int) -> PerRecord:
        """See `Rule`."""
        features, back = _positions(inputs, records), _positions(grads, records)
        gradients = {}
        if "weight" in self.parameters:
            gradients["weight"] = torch.bmm(back.transpose(1, 2), features)
        if "bias" in self.parameters:
            gradients["bias"] = back.sum(dim=1)
        return gradients

    def weighted(self, inputs: Tensor, grads: Tensor, weights: Tensor) -> PerRecord:
        """See `Rule`."""
        back = weigh_records(grads, weights).flatten(0, -2)
        sums = {}
        if "weight" in self.parameters:
            sums["weight"] = back.T @ inputs.flatten(0, -2)
        if "bias" in self.parameters:
            sums["bias"] = back.sum(dim=0)
        return sums

    def ways(self, inputs: Tensor, grads: Tensor, records: int) -> tuple[str, ...]:
        """See `Rule`."""
        positions = inputs[0].numel() // inputs.shape[-1] * (len(inputs) // records)
        wide, narrow = inputs.shape[-1], grads.shape[-1]
        if positions == 1:
            return (GHOST,)
        if 2 * positions**2 < wide * narrow:
            return (GHOST, INSTANTIATE)
        # With so many positions a gradient is smaller than what it is computed from.
        return (KEEP, GHOST)

    def squared_norms(
        self, inputs: Tensor, grads: Tensor, records: int, *, way: str
    ) -> SquaredNorms:
        """See `Rule`."""
        features, back = _positions(inputs, records), _positions(grads, records)
        if features.shape[1] == 1:
            ones = 1.0 if "bias" in self.parameters else 0.0
            size = features.square().sum(dim=(1, 2)) if "weight" in self.parameters else 0.0
            # In float64, as one factor may be too small for a square that the other makes up for.
            sent = back.double().square().sum(dim=(1, 2))
            return SquaredNorms.exact((sent * (size + ones)).float())
        many = _at_once(features, back)
        if records <= many:
            return self._measure(features, back, way)
        parts = [
            self._measure(a, b, way)
            for a, b in zip(torch.split(features, many), torch.split(back, many), strict=True)
        ]
        return SquaredNorms(*(torch.cat(pieces) for pieces in zip(*parts, strict=True)))

    def _measure(self, features: Tensor, back: Tensor, way: str) -> SquaredNorms:
        bias = room = back.new_zeros(len(back))
        if "bias" in self.parameters:
            bias, room = back.sum(dim=1).square().sum(dim=1), room_of_sums(back)
        if "weight" not in self.parameters:
            return SquaredNorms(bias, room)
        if way == GHOST:
            value, rounding = gram_product(
                torch.bmm(features, features.transpose(1, 2)), torch.bmm(back, back.transpose(1, 2))
            )
            return SquaredNorms(value + bias, rounding + room)
        gradients = torch.bmm(back.transpose(1, 2), features)
        value, rounding = measured(gradients, features, back, precision=self.precision)
        return SquaredNorms(value + bias, rounding + room)


class EmbeddingRule(Rule):
    """nn.Embedding: a record touches few rows, and each adds up what its positions send."""

    def __init__(self, layer: nn.Embedding) -> None:
        super().__init__(layer)
        self._table, self._padding = layer.weight.shape, layer.padding_idx

    def per_record(self, inputs: Tensor, grads: Tensor, records: int) -> PerRecord:
        """See `Rule`."""
        rows, width = self._table
        ids, back = inputs.reshape(records, -1), self._counted(inputs, grads, records)
        table = back.new_zeros(records, rows, width)
        table.scatter_add_(1, ids[..., None].expand(-1, -1, width), back)
        return {"weight": table}

    def weighted(self, inputs: Tensor, grads: Tensor, weights: Tensor) -> PerRecord:
        """See `Rule`."""
        back = self._counted(inputs, grads, len(weights)) * weights[:, None, None]
        table = back.new_zeros(self._table)
        return {"weight": table.index_add_(0, inputs.reshape(-1), back.flatten(0, 1))}

    def ways(self, inputs: Tensor, grads: Tensor, records: int) -> tuple[str, ...]:
        """See `Rule`."""
        return (INSTANTIATE,)

    def squared_norms(
        self, inputs: Tensor, grads: Tensor, records: int, *, way: str
    ) -> SquaredNorms:
        """See `Rule`."""
        ids, back = inputs.reshape(records, -1), self._counted(inputs, grads, records)
        keys = ids + self._table[0] * torch.arange(records, device=ids.device)[:, None]
        seen, slots = torch.unique(keys, return_inverse=True)
        sums = back.new_zeros(len(seen), back.shape[-1]).index_add_(
            0, slots.reshape(-1), back.flatten(0, 1)
        )
        owner = torch.div(seen, self._table[0], rounding_mode="floor")
        sizes = sums.square().sum(dim=1)
        value = back.new_zeros(records).index_add_(0, owner, sizes)
        return SquaredNorms(value, room_of_sums(back))

    def _counted(self, inputs: Tensor, grads: Tensor, records: int) -> Tensor:
        """Output gradients (n, positions, width), 0 where the padding is read."""
        back = _positions(grads, records)
        if self._padding is None:
            return back
        return back.masked_fill((inputs.reshape(records, -1) == self._padding)[..., None], 0.0)


def _positions(values: Tensor, records: int) -> Tensor:
    """(n * copies, ..., width) as (n, positions, width)."""
    return values.reshape(records, -1, values.shape[-1])


def _at_once(features: Tensor, back: Tensor) -> int:
    positions, wide = features.shape[1:]
    return at_once(features, max(positions**2, wide * back.shape[-1]))
