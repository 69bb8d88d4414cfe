"""Rules for the scale and shift of normalisation layers, and for a learned scale alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpal.training.per_record.layer_rule import (
    Rule,
)
from dpal.training.per_record.norms_and_sums import (
    PerRecord,
    at_once,
    inner,
)
from dpal.training.per_record.patches import rows


class LastAxesRule(Rule):
    """LayerNorm and RMSNorm: parameters stand along the last axes."""

    def per_record(self, inputs: Tensor, grads: Tensor, records: int) -> PerRecord:
        """See `Rule`."""
        shape = next(self.layer.parameters(recurse=False)).shape
        terms = {}
        if "weight" in self.parameters:
            terms["weight"] = grads * self._normalised(inputs)
        if "bias" in self.parameters:
            terms["bias"] = grads
        return {name: term.reshape(records, -1, *shape).sum(dim=1) for name, term in terms.items()}

    def weighted(self, inputs: Tensor, grads: Tensor, weights: Tensor) -> PerRecord:
        """See `Rule`."""
        gradients = self.per_record(inputs, grads, len(weights))
        return {name: torch.tensordot(weights, part, 1) for name, part in gradients.items()}

    def _normalised(self, inputs: Tensor) -> Tensor:
        layer = self.layer
        if isinstance(layer, nn.RMSNorm):
            return F.rms_norm(inputs, layer.normalized_shape, eps=layer.eps)
        shape: Sequence[int] = layer.normalized_shape  # type: ignore[assignment]
        return F.layer_norm(inputs, shape, eps=layer.eps)  # type: ignore[arg-type]


class ScalarRule(Rule):
    """A layer that multiplies what it reads by its only parameter, one number."""

    def per_record(self, inputs: Tensor, grads: Tensor, records: int) -> PerRecord:
        """See `Rule`."""
        sums = inner(inputs, grads).reshape(records, -1).sum(dim=1)
        return dict.fromkeys(self.parameters, sums)

    def weighted(self, inputs: Tensor, grads: Tensor, weights: Tensor) -> PerRecord:
        """See `Rule`."""
        gradients = self.per_record(inputs, grads, len(weights))
        return {name: weights @ part for name, part in gradients.items()}


class ChannelRule(Rule):
    """GroupNorm and InstanceNorm: one scale and one shift per channel.

    The normalised input is (input - mean) / deviation in every group, so that two sums per
    channel are enough: of the output's gradient, and of its product with the input.
    """

    def per_record(self, inputs: Tensor, grads: Tensor, records: int) -> PerRecord:
        """See `Rule`."""
        many = at_once(inputs, 4 * inputs[0].numel())
        parts = [
            self._sums(rows(a), rows(b))
            for a, b in zip(torch.split(inputs, many), torch.split(grads, many), strict=True)
        ]
        sums = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        named = dict(zip(("weight", "bias"), sums, strict=True))
        channels = inputs.shape[1]
        return {
            name: named[name].reshape(records, -1, channels).sum(dim=1) for name in self.parameters
        }

    def weighted(self, inputs: Tensor, grads: Tensor, weights: Tensor) -> PerRecord:
        """See `Rule`."""
        gradients = self.per_record(inputs, grads, len(weights))
        return {name: torch.tensordot(weights, part, 1) for name, part in gradients.items()}

    def _sums(self, inputs: Tensor, grads: Tensor) -> tuple[Tensor, Tensor]:
        """From (n, places, channels) the gradients of scale and shift, (n, channels) each."""
        n, places, channels = inputs.shape
        shift = grads.sum(dim=1)
        groups, eps = self._settings(channels)
        # Moments around a value near the mean: no difference of large squares.
        near = inputs[:, :1].reshape(n, groups, -1).mean(dim=2)
        spread = inputs - near.repeat_interleave(channels // groups, dim=1)[:, None]
        first = spread.sum(dim=1)
        product = (spread * grads).sum(dim=1)
        second = spread.square_().sum(dim=1)
        size = places * channels // groups
        mean = first.reshape(n, groups, -1).sum(dim=2) / size
        variance = second.reshape(n, groups, -1).sum(dim=2) / size - mean.square()
        scale = (variance.clamp(min=0.0) + eps).rsqrt()
        mean, scale = (x.repeat_interleave(channels // groups, dim=1) for x in (mean, scale))
        return scale * (product - mean * shift), shift

    def _settings(self, channels: int) -> tuple[int, float]:
        """Number of groups, and what is added to the variance."""
        layer = self.layer
        groups = layer.num_groups if isinstance(layer, nn.GroupNorm) else channels
        return groups, float(layer.eps)  # type: ignore[arg-type]
