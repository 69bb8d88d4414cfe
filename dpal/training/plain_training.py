"""Plain training on public records: no clipping, no noise, nothing that could be charged.

For bought labels of public records and for pretraining on them; of private records teachers alone
learn so, each of its own part. What starts from a private model stays as private as that is: it is
post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from dpal.data.readers import to_input
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.public_selection import FineTuning
from dpal.planning.student_recipe import StudentTraining
from dpal.planning.training_recipe import Augmentation
from dpal.randomness import seeded
from dpal.training.augmentation import augment, require_images
from dpal.training.losses import per_record_loss

OnStep = Callable[[], object]
Settings = FineTuning | StudentTraining

ORDER = "order of public records"  # purpose of the seed: the student draws the same
_MOMENTUM = 0.9


def training_steps(spec: Settings, records: int) -> int:
    """Steps of a training on so many records; the last, short batch of an epoch counts."""
    return spec.epochs * math.ceil(records / spec.batch_size)


def shuffled_batches(spec: Settings, records: int, *, rng: np.random.Generator) -> Iterator[Tensor]:
    """Rows of every step, epoch by epoch, each in an order of its own."""
    for _ in range(spec.epochs):
        yield from torch.split(torch.from_numpy(rng.permutation(records)), spec.batch_size)


def fine_tune(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    spec: FineTuning,
    *,
    task: Task,
    may_diverge: bool = False,
    on_step: OnStep = lambda: None,
) -> None:
    """Trains a model on public records, in place; the same settings give the same model.

    Args:
      model: from records to logits; its frozen parameters stay as they are.
      inputs: (n, *input_shape) decoded records.
      labels: (n,) class numbers, or (n, labels) zeros and ones.
      spec: how.
      task: what a label is.
      may_diverge: whether weights that are no numbers are kept, and nothing is said of them: of
        private records, that a training failed would tell.
      on_step: called after every step.

    Raises:
      ParameterError: there is no record, views are asked for of what is no image, or the
        training diverged and may not, so that nothing of use was made.
    """
    if not len(inputs):
        raise ParameterError("there are no labeled public records to train on")
    augmentation = Augmentation(shift=spec.shift)
    require_images(augmentation, tuple(inputs.shape[1:]))
    device, loss_of = next(model.parameters()).device, per_record_loss(task)

    def losses() -> Iterator[Tensor]:
        draw = seeded(spec.seed, ORDER)
        views = torch.Generator().manual_seed(int(draw.integers(2**63)))
        for rows in shuffled_batches(spec, len(inputs), rng=draw):
            batch = augment(inputs[rows], augmentation, generator=views)
            yield loss_of(model(to_input(batch.to(device))), labels[rows].to(device)).mean()

    descend(model, losses(), spec, steps=training_steps(spec, len(inputs)), on_step=on_step)
    if not may_diverge:
        require_finite(
            model,
            f"fine-tuning diverged with fine_tuning.learning_rate {spec.learning_rate:g}; lower it "
            "(the private model is unchanged, and nothing was released)",
        )


def descend(
    model: nn.Module,
    losses: Iterator[Tensor],
    spec: Settings,
    *,
    steps: int,
    on_step: OnStep = lambda: None,
) -> None:
    """Takes one optimizer step for each loss, in place; the rate falls along a cosine.

    Args:
      model: its frozen parameters stay as they are; left in evaluation mode.
      losses: scalars; each is computed from the model when its turn comes.
      spec: optimizer and rate.
      steps: how many losses there are.
      on_step: called after every step.
    """
    optimizer = _optimizer(model, spec)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    model.train()
    for loss in losses:
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rates.step()
        on_step()
    model.eval()


def require_finite(model: nn.Module, message: str) -> None:
    """Requires weights that are numbers.

    Raises:
      ParameterError: with this message, they are not: nothing of use was made.
    """
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise ParameterError(message)


def _optimizer(model: nn.Module, spec: Settings) -> torch.optim.Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if spec.optimizer == "adam":
        return torch.optim.AdamW(trained, lr=spec.learning_rate, weight_decay=spec.weight_decay)
    return torch.optim.SGD(
        trained, lr=spec.learning_rate, momentum=_MOMENTUM, weight_decay=spec.weight_decay
    )
