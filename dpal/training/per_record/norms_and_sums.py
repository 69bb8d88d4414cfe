"""Squared norms of records' gradients, and their weighted sums: what all rules compute with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from dpal.planning.training_recipe import Precision

# Squared norms from products of Gram matrices can cancel: what rounding may hide of them is
# at most this share of the product of the two matrices' norms (float32, blocked sums).
GRAM_ROUNDING = 1e-6

# A gradient that is measured, dropped and summed again is rounded anew, by e, which is all
# there is where positions cancel. The clipping slack s covers (norm + e)^2 when e^2 / (2 s)
# is added to the square of the norm. Over |inputs| |output gradients|, e is up to 2e-7 in
# float32; where factors are rounded to 10 bits, independently, 3e-4 over the root of the
# number of positions, of which no fewer than 4 are taken.
INSTANTIATED_ROUNDING = {Precision.FP32: 2e-10, Precision.TF32: 1e-5, Precision.BF16: 1e-5}

# Floats of a temporary. On a processor it stays in the cache; an accelerator is given so much that
# starting a kernel is little beside running it (256 MiB: small enough for any of them).
_IN_CACHE, _IN_BULK = 1 << 20, 1 << 26
_SQUARES_IN_CACHE = 1 << 18  # squares are written and read again at once

PerRecord = Mapping[str, Tensor]
"""For each of a layer's parameters one tensor (n, *parameter.shape)."""


class SquaredNorms(NamedTuple):
    """Squared norms of records' gradients with respect to a layer's parameters.

    Attributes:
      value: (n,) as computed.
      rounding: (n,) how much larger they may be; clipping uses the sum of both.
    """

    value: Tensor
    rounding: Tensor

    @classmethod
    def exact(cls, value: Tensor) -> SquaredNorms:
        """Of gradients that are summed as they were measured."""
        return cls(value, torch.zeros_like(value))


def squared(gradients: PerRecord) -> Tensor:
    """Squared norms (n,) over all of a layer's parameters."""
    return torch.stack([squares(part) for part in gradients.values()]).sum(dim=0)


def gram_product(first: Tensor, second: Tensor) -> SquaredNorms:
    """Inner products of Gram matrices, two of shape (n, positions, positions)."""
    value = inner(first, second)
    # Roots first: the product of the squares overflows long before a gradient does.
    size = squares(first).sqrt() * squares(second).sqrt()
    return SquaredNorms(value.clamp(min=0.0), GRAM_ROUNDING * size)


def measured(
    gradients: Tensor, inputs: Tensor, grads: Tensor, *, precision: Precision, taps: int = 1
) -> SquaredNorms:
    """Of gradients (n, ...) that are dropped, and summed again from what they came from.

    Args:
      gradients: (n, ...).
      inputs: (n * copies, ...), of which every value is read at most `taps` times.
      grads: (n * copies, ...), of the outputs.
      precision: of the products.
      taps: of a filter.
    """
    room = rounding_room(inputs, grads, len(gradients), precision=precision, taps=taps)
    return SquaredNorms(squares(gradients), room)


def rounding_room(
    inputs: Tensor, grads: Tensor, records: int, *, precision: Precision, taps: int = 1
) -> Tensor:
    """How much larger (n,) squared norms may be of gradients that are dropped and summed again.

    Args:
      inputs: (n * copies, ...), as in `measured`.
      grads: (n * copies, ...), likewise.
      records: n.
      precision: of the products.
      taps: of a filter.
    """
    read, sent = (squares(values).reshape(records, -1).sum(dim=1) for values in (inputs, grads))
    return INSTANTIATED_ROUNDING[precision] * taps * read * sent


def room_of_sums(terms: Tensor) -> Tensor:
    """The same (n,) of sums over positions, of terms (n, positions, width) in float32.

    As a layer sums that reads 1 at each position. With one position there is nothing to add up.
    """
    positions = terms.shape[1]
    if positions == 1:
        return terms.new_zeros(len(terms))
    return INSTANTIATED_ROUNDING[Precision.FP32] * positions * squares(terms)


def squares(values: Tensor) -> Tensor:
    """Squared norms (n,) of a tensor (n, ...), however it lies in memory."""
    axes = tuple(range(1, values.dim()))
    if not axes or not values.numel():
        return values.square().reshape(len(values), -1).sum(dim=1)
    each = values[0].numel() * (_IN_CACHE // _SQUARES_IN_CACHE)
    parts = torch.split(values, at_once(values, each))
    # Not vector_norm: it adds one after the other, 7e-4 wrong for ten million values.
    return torch.cat([part.square().sum(dim=axes) for part in parts])


def at_once(values: Tensor, each: int) -> int:
    """How many records to take at a time, at least one.

    Args:
      values: of the layer; says which device computes.
      each: floats of the largest temporary of one record.
    """
    return max(1, (_IN_CACHE if values.device.type == "cpu" else _IN_BULK) // max(each, 1))


def inner(first: Tensor, second: Tensor) -> Tensor:
    """Inner products (n,) of two tensors (n, ...)."""
    return (first * second).reshape(len(first), -1).sum(dim=1)


def weighed(gradients: Tensor, weights: Tensor) -> Tensor:
    """Sums (n, ...) with weights (n,), in the order in which they lie in memory: no copy."""
    order = sorted(range(1, gradients.dim()), key=gradients.stride, reverse=True)
    total = weights @ gradients.permute(0, *order).reshape(len(gradients), -1)
    shaped = total.reshape([gradients.shape[axis] for axis in order])
    return shaped.permute(sorted(range(len(order)), key=order.__getitem__))


def weigh_records(grads: Tensor, weights: Tensor) -> Tensor:
    """Multiplies (n * copies, ...) with one weight per record; broken values become 0."""
    copies = len(grads) // max(len(weights), 1)
    every = weights if copies == 1 else weights.repeat_interleave(copies)
    shaped = every.to(grads.dtype).reshape(-1, *[1] * (grads.dim() - 1))
    return grads * shaped
