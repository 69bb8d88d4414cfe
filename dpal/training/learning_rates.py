"""The learning rate at a step: a function of the plan alone, so that resuming finds it again."""

from __future__ import annotations

import math

import torch

from dpal import check
from dpal.planning.training_recipe import RateSchedule, Recipe


def rate_at(recipe: Recipe, learning_rate: float, step: int, steps: int) -> float:
    """Returns the learning rate of one step of a phase.

    Over the first `recipe.warmup` of the steps it grows in equal parts; the step after that
    has the full rate, and from there the schedule begins. No step has rate zero.

    Args:
      recipe: schedule and warm-up.
      learning_rate: the full rate.
      step: number of the step within the phase, from 1.
      steps: of the phase, all of its parts together.

    Raises:
      ParameterError: the phase has no such step.

    Source:
      Cosine: Loshchilov & Hutter (2017), "SGDR", eq. 5, from the full rate to zero.

    >>> [rate_at(Recipe(warmup=0.4), 1.0, step, 5) for step in (1, 3, 5)]
    [0.3333333333333333, 1.0, 1.0]
    """
    check.at_least(1, steps=steps)
    check.within(1, steps, step=step)
    growing = math.floor(recipe.warmup * steps)
    if step <= growing:
        return learning_rate * step / (growing + 1)
    progress = (step - growing - 1) / (steps - growing)  # below 1, also at the last step
    return learning_rate * _remaining(recipe.rate_schedule, progress)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Makes the optimizer's next step one of this rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def _remaining(schedule: RateSchedule, progress: float) -> float:
    """Share of the full rate after a share of the way."""
    match schedule:
        case RateSchedule.CONSTANT:
            return 1.0
        case RateSchedule.LINEAR:
            return 1.0 - progress
        case RateSchedule.COSINE:
            return 0.5 * (1.0 + math.cos(math.pi * progress))
