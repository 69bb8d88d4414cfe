"""What a model's logits mean: probabilities, and the loss of one record."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from dpal.labels import Task

RecordLoss = Callable[[Tensor, Tensor], Tensor]


def per_record_loss(task: Task) -> RecordLoss:
    """Returns the loss of each record of a batch.

    Cross-entropy of classes that exclude each other; for several labels the mean over those
    that are known of each one's binary cross-entropy; without any a record's loss is 0, and nothing
    is learned of it. The mean keeps the length of a record's gradient,
    and with it a sensible clipping norm, about the same for 6 labels and for 100; the sum
    would be the same direction, longer.

    Args:
      task: what a label is.

    Returns:
      From logits (n, classes) and targets, (n,) class numbers or (n, classes) zeros and
      ones (-1 where not known), to losses (n,). Finite wherever the logits are: both work on
      logarithms and never form a probability that could round to 0 or 1. A record's loss depends on
      its own row.
    """
    return _LOSSES[task]


def probabilities_of(task: Task) -> Callable[[Tensor], Tensor]:
    """Returns what turns logits (..., classes) into probabilities of the same shape."""
    return softmax if task is Task.SINGLE_LABEL else torch.sigmoid


def softmax(logits: Tensor) -> Tensor:
    """Probabilities of classes that exclude each other, over the last axis."""
    # Written out, in a quarter of the time: torch.softmax takes rows of few numbers one by one.
    powers = (logits - logits.amax(dim=-1, keepdim=True)).exp_()
    return powers / powers.sum(dim=-1, keepdim=True)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits, targets, reduction="none")


def _mean_binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    losses = functional.binary_cross_entropy_with_logits(
        logits, targets.clamp(min=0).to(logits.dtype), reduction="none"
    )
    known = targets >= 0
    # Chosen, not multiplied: whatever a logit is, what nobody knows says nothing of it.
    learned = torch.where(known, losses, torch.zeros_like(losses))
    return learned.sum(dim=1) / known.sum(dim=1).clamp(min=1)


_LOSSES: dict[Task, RecordLoss] = {
    Task.SINGLE_LABEL: _cross_entropy,
    Task.MULTI_LABEL: _mean_binary_cross_entropy,
}
