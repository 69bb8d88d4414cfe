"""Trains one phase exactly as planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import nn

from dpal import check
from dpal.data.pool import LabeledSet
from dpal.planning.plan import Phase, TrainingPhase
from dpal.planning.spec import OptimizerSpec
from dpal.randomness import BitSource
from dpal.training.batches import PoissonBatches
from dpal.training.dp_sgd import PrivateGradient


def train_phase(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    labeled: LabeledSet,
    phase: Phase,
    spec: OptimizerSpec,
    *,
    physical_batch: int,
    rng: BitSource,
    done: int = 0,
    before_step: Callable[[int], None] = lambda step: None,
    on_step: Callable[[int], None] = lambda step: None,
) -> None:
    """Runs the DP-SGD steps of a phase, or what is left of them, in place.

    Args:
      model: from the phase before, fresh, or from a checkpoint.
      optimizer: over the model's parameters, its state carried over.
      labeled: all labeled records with their cohorts.
      phase: steps, rates, noise and divisor.
      spec: the clipping norm.
      physical_batch: records per backward pass.
      rng: source of batch membership and noise; a fresh one for every attempt at a step.
      done: steps that the model has behind it.
      before_step: told the number of each step before anything of it is computed; raises
        to forbid it.
      on_step: told the number of finished steps; nothing about records.
    """
    model.train()
    for part, first in remaining(phase, done=done):
        batches = PoissonBatches.of_part(part, phase.index, labeled.cohorts, labeled.participation)
        batches = replace(batches, steps=part.steps - first)
        gradient = PrivateGradient(
            model,
            max_grad_norm=spec.max_grad_norm,
            noise_multiplier=part.noise_multiplier,
            expected_batch_size=part.expected_batch_size,
            physical_batch=physical_batch,
            rng=rng,
        )
        try:
            for rows in batches.draw(rng=rng):
                before_step(done + 1)
                chosen = torch.from_numpy(rows)
                gradient.write(labeled.inputs[chosen], labeled.labels[chosen])
                optimizer.step()
                done += 1
                on_step(done)
        finally:
            gradient.close()


def remaining(phase: Phase, *, done: int) -> Iterator[tuple[TrainingPhase, int]]:
    """Yields the parts of a phase that have steps left, and how many of each are done.

    Args:
      phase: whose parts run one after the other.
      done: steps made, from 0 to all.

    Raises:
      ParameterError: the phase has no such step.
    """
    check.within(0, phase.steps, done=done)
    for part in phase.parts:
        here = min(done, part.steps)
        done -= here
        if here < part.steps:
            yield part, here


def position(phase: Phase, *, done: int) -> dict[str, int]:
    """Where a phase stands: the number of the part that is next, and its finished steps."""
    left = list(remaining(phase, done=done))
    return {"part": len(phase.parts) - len(left), "steps": left[0][1] if left else 0}
