"""Step size and clipping norm of a linear model, by public numbers alone.

Few labels want small steps, as noise is per step; many want large ones. Both follow from how far
noise moves what a model says of a record, wherever inputs have a known size: deviation 1 for each
number. How the two constants were found: docs/results.md, "Defaults".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpal import check
from dpal.labels import Task
from dpal.planning.campaign_plan import Plan

_CLIPPED = 0.05  # clipping norm over the length of a gradient before anything is learned
_FARTHEST = 250.0  # by which a step may move a logit at most, where noise would allow for more


@dataclass(frozen=True, kw_only=True)
class LinearRates:
    """How a linear model is trained.

    Attributes:
      learning_rate: step size.
      max_grad_norm: longest gradient of a record.
    """

    learning_rate: float
    max_grad_norm: float


def linear_rates(plan: Plan, *, width: int, momentum: float, logit_noise: float) -> LinearRates:
    """Rates at which noise moves a record's logits by about `logit_noise` in all.

    Args:
      plan: whose noise, batches and steps these are; its rates are not looked at.
      width: numbers of a record, each of mean square about 1.
      momentum: of the optimizer.
      logit_noise: standard deviation of a logit, by the noise of all steps.

    A step moves a logit by learning_rate * max_grad_norm * sqrt(width) / (1 - momentum) at most;
    noise of deviation sigma * max_grad_norm / batch in every weight moves it by sigma / batch of
    that, and independent steps add up in squares.
    """
    check.at_least(1, width=width)
    check.positive(logit_noise=logit_noise)
    model = plan.spec.model
    noise = math.sqrt(
        sum(
            part.steps * (part.noise_multiplier / part.expected_batch_size) ** 2
            for phase in plan.phases
            for part in phase.parts
            if part.steps
        )
    )
    farthest = min(_FARTHEST, logit_noise / noise)
    # What a model says before it has learned is the same of all classes, or labels. The loss of
    # several labels is their mean.
    several = model.task is Task.MULTI_LABEL
    error = 0.5 / math.sqrt(model.classes) if several else math.sqrt(1 - 1 / model.classes)
    bound = _CLIPPED * error * math.sqrt(width + 1)
    rate = farthest * (1 - momentum) / (bound * math.sqrt(width))
    return LinearRates(learning_rate=_rounded(rate), max_grad_norm=_rounded(bound))


def _rounded(value: float) -> float:
    """Two digits, as people write settings."""
    return float(f"{value:.2g}")
