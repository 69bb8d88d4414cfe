"""Plain training of many small models at once, each as if it were alone.

A step of logistic regression on 32 records takes microseconds, and what Python and torch do
around it hundreds. Here a step is one of many models, whose weights are stacked: each product is
of a batch of matrices. Nothing is shared: a model's gradient is of its own records' losses
alone, and the optimizer treats each weight by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from dpal.data.readers import to_input
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.public_selection import FineTuning
from dpal.randomness import seeded
from dpal.training.losses import per_record_loss
from dpal.training.plain_training import (
    ORDER,
    OnStep,
    descend,
    training_steps,
)

# Layers whose output for a record depends on it alone, that draw nothing and keep no state.
_SMALL = (nn.Sequential, nn.Flatten, nn.Linear, nn.Tanh, nn.ReLU)


def is_small_head(model: nn.Module, spec: FineTuning) -> bool:
    """Whether such models can be trained side by side: fully connected, all of it trained."""
    layers = all(type(layer) in _SMALL for layer in model.modules())
    trained = all(parameter.requires_grad for parameter in model.parameters())
    return layers and trained and spec.shift == 0


def fine_tune_together(
    models: Sequence[nn.Module],
    inputs: Sequence[Tensor],
    labels: Sequence[Tensor],
    specs: Sequence[FineTuning],
    *,
    task: Task,
    on_step: OnStep = lambda: None,
) -> None:
    """Trains each model on its own records, in place, as `fine_tune` does one after the other.

    The result is that of `fine_tune` up to rounding, as sums are made in another order. Adam
    divides by the size of a gradient, and makes some hundredths of a step of the rounding of one
    that is next to nothing. The same models together give the same result again, and what one
    has moves no bit of another. One that diverges is kept: records are private here, and that a
    training failed would tell of them.

    Args:
      models: k of one architecture, all on one device, of which `is_small_head` holds.
      inputs: of each, (n, *input_shape) decoded records.
      labels: of each, (n,) class numbers, or (n, labels) zeros and ones.
      specs: of each; they differ in nothing but their seeds.
      task: what a label is.
      on_step: called after every step of all.

    Raises:
      ParameterError: a model has no records, or they would take different numbers of steps.
    """
    sizes = [len(own) for own in inputs]
    if not all(sizes):
        raise ParameterError("there are no labeled public records to train on")
    if len({training_steps(spec, size) for spec, size in zip(specs, sizes, strict=True)}) > 1:
        raise ParameterError("models that are trained side by side take as many steps each")
    together, spec = _Stacked(models), specs[0]
    records, answers = _padded(inputs), _padded(labels)
    device, loss_of = next(models[0].parameters()).device, per_record_loss(task)
    first = len(records[0]) * torch.arange(len(models))[:, None]
    records, answers = records.flatten(0, 1), answers.flatten(0, 1)

    def losses() -> Iterator[Tensor]:
        for rows, weights in _batches(specs, sizes):
            places = (first + rows).flatten()
            batch, wanted = records.index_select(0, places), answers.index_select(0, places)
            logits = together(to_input(batch.to(device)).reshape(*rows.shape, *batch.shape[1:]))
            of_records = loss_of(logits.flatten(0, 1), wanted.to(device))
            # The gradient of a sum: to each model that of its own mean.
            yield (of_records * weights.to(device).flatten()).sum()

    descend(together, losses(), spec, steps=training_steps(spec, sizes[0]), on_step=on_step)
    together.give_back(models)


class _Stacked(nn.Module):
    """Models of one architecture as one, whose first axis is theirs."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        stacked, _ = stack_module_state(list(models))
        self._names = list(stacked)
        self._weights = nn.ParameterList(stacked.values())
        self._one = (models[0],)  # in a tuple: it is no part of what is trained

    def forward(self, inputs: Tensor) -> Tensor:
        """From (models, n, *input_shape) to logits (models, n, classes)."""
        logits: Tensor = torch.vmap(self._logits)(list(self._weights), inputs)
        return logits

    def _logits(self, weights: list[Tensor], inputs: Tensor) -> Tensor:
        own = dict(zip(self._names, weights, strict=True))
        logits: Tensor = functional_call(self._one[0], own, (inputs,))
        return logits

    def give_back(self, models: Sequence[nn.Module]) -> None:
        """Copies each model's weights to it, and leaves it in evaluation mode."""
        stacked = dict(zip(self._names, self._weights, strict=True))
        with torch.no_grad():
            for number, model in enumerate(models):
                for name, parameter in model.named_parameters():
                    parameter.copy_(stacked[name][number])
                model.eval()


def _padded(tensors: Sequence[Tensor]) -> Tensor:
    """(k, most, ...) of tensors (n, ...); what is not there is never read, or weighs nothing."""
    most = max(len(tensor) for tensor in tensors)
    shape = (len(tensors), most, *tensors[0].shape[1:])
    together = torch.zeros(shape, dtype=tensors[0].dtype)
    for number, tensor in enumerate(tensors):
        together[number, : len(tensor)] = tensor
    return together


def _batches(specs: Sequence[FineTuning], sizes: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of every step as `fine_tune` draws them, (k, m), and what each weighs in its mean.

    The last batch of an epoch may be shorter for some: a row of theirs weighs nothing there.
    """
    draws = []
    for spec in specs:
        draw = seeded(spec.seed, ORDER)
        draw.integers(2**63)  # of views, which `fine_tune` draws first
        draws.append(draw)
    length, epochs = specs[0].batch_size, specs[0].epochs
    steps = math.ceil(max(sizes) / length)
    there = torch.arange(steps * length) < torch.tensor(sizes)[:, None]
    for _ in range(epochs):
        rows = torch.zeros((len(sizes), steps * length), dtype=torch.int64)
        for number, (draw, size) in enumerate(zip(draws, sizes, strict=True)):
            rows[number, :size] = torch.from_numpy(draw.permutation(size))
        for start in range(0, max(sizes), length):
            some = slice(start, min(start + length, max(sizes)))
            mine = there[:, some].float()
            yield rows[:, some], mine / mine.sum(dim=1, keepdim=True)
