"""Trains one phase exactly as planned."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from dpal.data.pool import LabeledSet
from dpal.planning.plan import Phase
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
    on_step: Callable[[int], None] = lambda step: None,
) -> None:
    """Runs the DP-SGD steps of a phase, in place.

    Args:
      model: from the phase before, or fresh.
      optimizer: over the model's parameters, its state carried over.
      labeled: all labeled records with their cohorts.
      phase: steps, rates, noise and divisor.
      spec: the clipping norm.
      physical_batch: records per backward pass.
      rng: source of batch membership and noise.
      on_step: told the number of finished steps; nothing about records.
    """
    model.train()
    done = 0
    for part in phase.parts:
        batches = PoissonBatches.of_part(part, phase.index, labeled.cohorts)
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
                chosen = torch.from_numpy(rows)
                gradient.write(labeled.inputs[chosen], labeled.labels[chosen])
                optimizer.step()
                done += 1
                on_step(done)
        finally:
            gradient.close()
