"""Assertions on single training steps, on records that are not protected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal.audit.findings import AuditFinding, Layer
from dpal.models.build_model import build_model
from dpal.planning.campaign_plan import TrainingPhase
from dpal.planning.campaign_spec import CampaignSpec
from dpal.planning.training_recipe import Augmentation, ClippingKind, Recipe
from dpal.randomness import BitSource
from dpal.training.dp_sgd import PrivateGradient

TOLERANCE = 1e-3  # of float32 gradients that were computed in batches of different sizes
SLACK = 1e-4  # a contribution may exceed the clipping norm by this share (guarantee, R7)
_NO_NOISE = 1e-12
_LOUD = 1e3  # content far outside of what training expects
_ALONE, _LEFT_OUT = 24, 12


def step_findings(
    spec: CampaignSpec,
    part: TrainingPhase,
    inputs: Tensor,
    labels: Tensor,
    *,
    physical_batch: int,
    rng: BitSource,
) -> list[AuditFinding]:
    """Checks what one step does to its records.

    Args:
      spec: gives model and clipping norm.
      part: gives noise and divisor.
      inputs: (n, *input_shape) records that are not protected, at least two; float32, and
        int32 of texts.
      labels: (n,) class numbers.
      physical_batch: records per backward pass.
      rng: source of the noise.
    """
    step = _Step(spec, part, physical_batch, rng)
    norm = spec.optimizer.max_grad_norm
    # A record's own rounding differs with the batch it is in, in low precision by more.
    tolerance = max(TOLERANCE, 2 * spec.recipe.precision.slack)
    batch = step.total(inputs, labels)
    absurd = _absurd(inputs)
    alone = [
        step.total(records[i : i + 1], labels[i : i + 1])
        for i in range(min(_ALONE, len(inputs)))
        for records in (inputs, absurd)
    ]
    findings = [
        _clip(max(_length(total) for total in alone) / norm),
        _sensitivity(_largest_change(step, batch, inputs, labels) / norm, tolerance),
        _adds_up(_length(batch - _one_by_one(step, inputs, labels)) / norm, tolerance),
        _divisor(step.error_of_division(inputs, labels) / norm, tolerance),
        _empty(step.silent_share(inputs[:0], labels[:0])),
    ]
    if inputs.is_floating_point():  # numbers of tokens are always numbers
        findings.append(_not_finite(_change_by_nan(step, batch, inputs, labels) / norm, tolerance))
    return findings


class _Step:
    """The campaign's own step on a fresh model."""

    def __init__(
        self, spec: CampaignSpec, part: TrainingPhase, physical_batch: int, rng: BitSource
    ) -> None:
        self._spec, self._part, self._physical, self._rng = spec, part, physical_batch, rng
        self._gradients: dict[float, tuple[nn.Module, PrivateGradient]] = {}

    def total(self, inputs: Tensor, labels: Tensor) -> NDArray[np.float64]:
        """The clipped sum of a batch."""
        _, gradient = self._gradient(_NO_NOISE)
        return gradient.clipped_sum(inputs, labels)

    def error_of_division(self, inputs: Tensor, labels: Tensor) -> float:
        """How far, at most, divisor times gradient is from the sum, for several batch sizes."""
        errors = []
        for size in (1, 2, len(inputs)):
            released = self._released(inputs[:size], labels[:size], _NO_NOISE)
            total = self.total(inputs[:size], labels[:size])
            errors.append(_length(self._part.expected_batch_size * released - total))
        return max(errors)

    def silent_share(self, inputs: Tensor, labels: Tensor) -> float:
        """Share of the coordinates of one release that have no noise."""
        released = self._released(inputs, labels, self._part.noise_multiplier)
        return float((released == 0).mean())

    def _released(
        self, inputs: Tensor, labels: Tensor, noise_multiplier: float
    ) -> NDArray[np.float64]:
        model, gradient = self._gradient(noise_multiplier)
        gradient.write(inputs, labels)
        return released_gradient(model)

    def _gradient(self, noise_multiplier: float) -> tuple[nn.Module, PrivateGradient]:
        # One for all steps: none of them changes a weight.
        if noise_multiplier in self._gradients:
            return self._gradients[noise_multiplier]
        model = build_model(self._spec.model).train()
        gradient = PrivateGradient(
            model,
            max_grad_norm=self._spec.optimizer.max_grad_norm,
            noise_multiplier=noise_multiplier,
            expected_batch_size=self._part.expected_batch_size,
            physical_batch=self._physical,
            rng=self._rng,
            recipe=without_chance(self._spec.recipe),
        )
        self._gradients[noise_multiplier] = model, gradient
        return model, gradient


def without_chance(recipe: Recipe) -> Recipe:
    """The recipe with one view per record and a bound that stays: steps can be compared."""
    clipping = recipe.clipping
    if clipping.kind is ClippingKind.ADAPTIVE:
        clipping = replace(clipping, kind=ClippingKind.FLAT)
    return replace(recipe, clipping=clipping, augmentation=Augmentation())


def released_gradient(model: nn.Module) -> NDArray[np.float64]:
    """Gradients of all parameters that train in one row; zero where a step wrote none."""
    parts = [
        torch.zeros(p.numel()) if p.grad is None else p.grad.detach().flatten().cpu()
        for p in model.parameters()
        if p.requires_grad
    ]
    return np.asarray(torch.cat(parts).double().numpy())


def _absurd(inputs: Tensor) -> Tensor:
    """Records far outside of what training expects: loud ones, and texts of one word."""
    if inputs.is_floating_point():
        return _LOUD * inputs
    repeated = inputs.clone()
    repeated[:, 0] = inputs[:, 0].amax(dim=1, keepdim=True)  # no number is in no vocabulary
    return repeated


def _length(vector: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(vector))


def _largest_change(
    step: _Step, batch: NDArray[np.float64], inputs: Tensor, labels: Tensor
) -> float:
    """Most that the sum changes when one record goes."""
    changes = []
    for i in range(min(_LEFT_OUT, len(inputs))):
        kept = torch.arange(len(inputs)) != i
        changes.append(_length(batch - step.total(inputs[kept], labels[kept])))
    return max(changes)


def _one_by_one(step: _Step, inputs: Tensor, labels: Tensor) -> NDArray[np.float64]:
    parts = [step.total(inputs[i : i + 1], labels[i : i + 1]) for i in range(len(inputs))]
    return np.asarray(np.sum(parts, axis=0))


def _change_by_nan(
    step: _Step, batch: NDArray[np.float64], inputs: Tensor, labels: Tensor
) -> float:
    broken = torch.full_like(inputs[:1], torch.nan)
    joined = torch.cat([inputs, broken]), torch.cat([labels, labels[:1]])
    with_nan = step.total(*joined)
    return _length(with_nan - batch) if np.isfinite(with_nan).all() else np.inf


def _bound(what: str, value: float, limit: float, expected: str, likely: str) -> AuditFinding:
    return AuditFinding(
        layer=Layer.STEP,
        what=what,
        expected=expected,
        measured=f"{value:.4g} C",
        passed=value <= limit,
        likely=likely,
        claimed=1.0 if limit >= 1 else None,
        value=value if limit >= 1 else None,
    )


def _clip(value: float) -> AuditFinding:
    return _bound(
        "largest contribution of a record",
        value,
        1 + SLACK,
        "at most C",
        "gradients are not clipped, or to another norm than the plan's",
    )


def _sensitivity(value: float, tolerance: float) -> AuditFinding:
    return _bound(
        "largest change when one record goes",
        value,
        1 + SLACK + tolerance,
        "at most C",
        "clipping is off, or a record changes what others contribute",
    )


def _adds_up(value: float, tolerance: float) -> AuditFinding:
    return _bound(
        "a batch, less its records one by one",
        value,
        tolerance,
        "0",
        "a mean is taken instead of a sum, or records of a batch are mixed",
    )


def _not_finite(value: float, tolerance: float) -> AuditFinding:
    return _bound(
        "contribution of a NaN record",
        value,
        tolerance,
        "0",
        "one broken record changes the model without bound",
    )


def _divisor(value: float, tolerance: float) -> AuditFinding:
    return _bound(
        "divisor times gradient, less the sum",
        value,
        tolerance,
        "0 at any size",
        "the sum is divided by how many records joined (a mean) instead of the plan's constant",
    )


def _empty(share: float) -> AuditFinding:
    return AuditFinding(
        layer=Layer.STEP,
        what="silent coordinates of an empty batch",
        expected="none",
        measured=f"{100 * share:.3g} %",
        passed=share < TOLERANCE,
        likely="empty batches are skipped, which tells that nobody joined",
    )
