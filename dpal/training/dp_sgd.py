"""One private gradient: clip every record's, sum, add noise, divide by a public constant.

Per-sample gradients come from Opacus (hooks). Clipping, summing and noise are ours:
Opacus lets one record with a NaN gradient turn all parameters into NaN, and draws its
noise from a generator that is not cryptographic.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn

from dpal import check
from dpal.data.readers import to_input
from dpal.errors import ParameterError
from dpal.mechanisms.gaussian import noisy_sum
from dpal.randomness import BitSource
from dpal.training.chunks import chunks

# A float32 norm may be this much too small (measured: 1e-5). Clipping below C by more than
# that keeps every contribution at C. Contributions are added in float64, where the others'
# rounding moves by less than 1e-15 of their sum when one of them goes.
_FLOAT_SLACK = 1e-4

_ROWS_AT_ONCE = 64  # turned into float64 at a time: memory for these alone

# One output value depends on all records of the batch: no per-record gradient exists.
_MIXING = (nn.modules.batchnorm._BatchNorm,)


class PrivateGradient:
    """Writes private gradients of the cross-entropy into a model's parameters."""

    def __init__(
        self,
        model: nn.Module,
        *,
        max_grad_norm: float,
        noise_multiplier: float,
        expected_batch_size: float,
        physical_batch: int,
        rng: BitSource,
    ) -> None:
        """Prepares a model for per-sample gradients.

        Args:
          model: treats records apart; stays usable after `close`.
          max_grad_norm: clipping norm C.
          noise_multiplier: noise standard deviation over C.
          expected_batch_size: public divisor.
          physical_batch: records per backward pass; changes memory, nothing else.
          rng: source of the noise.

        Raises:
          ParameterError: the model mixes records, or a number is out of range.
        """
        check.positive(
            max_grad_norm=max_grad_norm,
            noise_multiplier=noise_multiplier,
            expected_batch_size=expected_batch_size,
        )
        check.at_least(1, physical_batch=physical_batch)
        for name, layer in model.named_modules():
            if isinstance(layer, _MIXING):
                raise ParameterError(
                    f"layer {name!r} ({type(layer).__name__}) mixes the records of a batch, so "
                    "no record has a gradient of its own; use group normalisation"
                )
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._hooked = GradSampleModule(model, loss_reduction="sum")
        self._norm, self._multiplier = max_grad_norm, noise_multiplier
        self._divisor, self._physical, self._rng = expected_batch_size, physical_batch, rng

    def write(self, inputs: Tensor, labels: Tensor) -> None:
        """Sets every parameter's `grad` for one batch; an empty batch gives noise alone.

        Args:
          inputs: (n, *input_shape) decoded records.
          labels: (n,) class numbers.
        """
        total = self.clipped_sum(inputs, labels)
        noisy = noisy_sum(total, self._multiplier * self._norm, rng=self._rng) / self._divisor
        at = 0
        for parameter in self._parameters:
            part = noisy[at : at + parameter.numel()].reshape(tuple(parameter.shape))
            parameter.grad = torch.from_numpy(part).to(parameter)
            at += parameter.numel()

    def clipped_sum(self, inputs: Tensor, labels: Tensor) -> NDArray[np.float64]:
        """Sums the clipped gradients of a batch, without noise: (n_parameters,) float64.

        Every record contributes a vector of norm at most C; one whose gradient is not
        finite contributes zero.
        """
        total = np.zeros(sum(p.numel() for p in self._parameters))
        device = self._parameters[0].device
        for rows, chunk in chunks(inputs, physical_batch=self._physical):
            real = rows.stop - rows.start
            targets = labels.new_zeros(len(chunk))
            targets[:real] = labels[rows]
            self._backward(to_input(chunk.to(device)), targets.to(device))
            total += self._clip_and_sum(real).cpu().numpy()
        return total

    def close(self) -> None:
        """Takes the hooks off the model."""
        self._hooked.remove_hooks()
        self._hooked.del_grad_sample()

    def _backward(self, inputs: Tensor, labels: Tensor) -> None:
        for parameter in self._parameters:
            parameter.grad = None
            parameter.grad_sample = None  # type: ignore[attr-defined]
        with warnings.catch_warnings():
            # Hooks on the first layer, whose input needs no gradient: as intended.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            loss = nn.functional.cross_entropy(self._hooked(inputs), labels, reduction="sum")
            torch.autograd.backward(loss)

    def _clip_and_sum(self, real: int) -> Tensor:
        """Sums the clipped gradients of the first `real` records; the others are blank."""
        per_record = [p.grad_sample[:real].flatten(1) for p in self._parameters]  # type: ignore[attr-defined]
        norms = torch.stack([part.norm(dim=1) for part in per_record]).norm(dim=0)
        finite = torch.isfinite(norms)
        factor = (self._norm / (norms * (1 + _FLOAT_SLACK))).clamp(max=1.0)
        factor = torch.where(finite, factor, 0.0)
        if not finite.all():
            # 0 * NaN is NaN: the values themselves must go.
            per_record = [part.masked_fill(~finite[:, None], 0.0) for part in per_record]
        weights = factor.double()
        return torch.cat([_weighted_sum(weights, part) for part in per_record])


def _weighted_sum(weights: Tensor, part: Tensor) -> Tensor:
    """Sums (n, width) float32 rows with float64 weights, a few rows at a time."""
    total = torch.zeros(part.shape[1], dtype=torch.float64, device=part.device)
    for start in range(0, len(part), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        total += weights[rows] @ part[rows].double()
    return total
