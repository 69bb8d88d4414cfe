"""Plain training on public records: no clipping, no noise, nothing that could be charged.

For bought labels of public records and for pretraining on them; no private record may come
here. What starts from a private model stays as private as that is: it is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dpal.data.readers import to_input
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.choice import FineTuning
from dpal.planning.recipe import Augmentation
from dpal.randomness import seeded
from dpal.training.augmentation import augment, require_images
from dpal.training.losses import per_record_loss

OnStep = Callable[[], object]

_MOMENTUM = 0.9


def steps_of(spec: FineTuning, records: int) -> int:
    """Steps of a training on so many records; the last, short batch of an epoch counts."""
    return spec.epochs * math.ceil(records / spec.batch_size)


def fine_tune(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    spec: FineTuning,
    *,
    task: Task,
    on_step: OnStep = lambda: None,
) -> None:
    """Trains a model on public records, in place; the same settings give the same model.

    Args:
      model: from records to logits; its frozen parameters stay as they are.
      inputs: (n, *input_shape) decoded records.
      labels: (n,) class numbers, or (n, labels) zeros and ones.
      spec: how.
      task: what a label is.
      on_step: called after every step.

    Raises:
      ParameterError: there is no record, views are asked for of what is no image, or the
        training diverged, so that nothing of use was made.
    """
    if not len(inputs):
        raise ParameterError("there are no labeled public records to train on")
    augmentation = Augmentation(shift=spec.shift)
    require_images(augmentation, tuple(inputs.shape[1:]))
    device = next(model.parameters()).device
    draw = seeded(spec.seed, "order of public records")
    views = torch.Generator().manual_seed(int(draw.integers(2**63)))
    optimizer = _optimizer(model, spec)
    total, loss_of = steps_of(spec, len(inputs)), per_record_loss(task)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
    model.train()
    for _ in range(spec.epochs):
        order = torch.from_numpy(draw.permutation(len(inputs)))
        for rows in torch.split(order, spec.batch_size):
            batch = augment(inputs[rows], augmentation, generator=views)
            losses = loss_of(model(to_input(batch.to(device))), labels[rows].to(device))
            optimizer.zero_grad()
            losses.mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            rates.step()
            on_step()
    model.eval()
    if not all(bool(one.isfinite().all()) for one in model.parameters()):
        raise ParameterError(
            f"fine-tuning diverged with fine_tuning.learning_rate {spec.learning_rate:g}; lower it "
            "(the private model is unchanged, and nothing was released)"
        )


def _optimizer(model: nn.Module, spec: FineTuning) -> torch.optim.Optimizer:
    trained = [one for one in model.parameters() if one.requires_grad]
    if spec.optimizer == "adam":
        return torch.optim.AdamW(trained, lr=spec.learning_rate, weight_decay=spec.weight_decay)
    return torch.optim.SGD(
        trained, lr=spec.learning_rate, momentum=_MOMENTUM, weight_decay=spec.weight_decay
    )
