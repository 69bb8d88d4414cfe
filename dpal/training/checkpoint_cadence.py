"""After how many steps a training persists its state: a public number.

By a clock it would follow the time of the steps, and that the number of labels, which may be
confidential. So what is timed is a step on made-up records, as many as planned.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dpal import check
from dpal.labels import Task
from dpal.planning.campaign_plan import Phase
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.training_recipe import Recipe
from dpal.randomness import secure
from dpal.training.backend_names import Backend
from dpal.training.dp_sgd import PrivateGradient
from dpal.training.per_record.screening import made_up

_TRIES = 2  # the first one warms up
_FEW = 32  # records that keep a CPU as busy as many do


def steps_within(minutes: float, *, step_seconds: float) -> int:
    """How many steps fit between two checkpoints, at least one.

    >>> steps_within(10, step_seconds=0.25)
    2400
    """
    check.positive(checkpoint_minutes=minutes)
    return max(1, int(60 * minutes / max(step_seconds, 1e-6)))


def planned_step_seconds(
    model: nn.Module,
    phase: Phase,
    spec: OptimizerSpec,
    like: Tensor,
    *,
    classes: int,
    task: Task,
    physical_batch: int,
    recipe: Recipe,
    backend: Backend,
    processes: int = 1,
    group_records: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Times a step of the planned size on made-up records, with a copy of the model.

    No record is read, and of what is drawn nothing is kept. A backward pass and the noise are
    timed; the rest of a step's records take as long as those of that pass.

    Args:
      model: as it will be trained, on its device.
      phase: of whose parts the largest batch counts.
      spec: the clipping norm.
      like: (1, *input_shape) a decoded record; only shape and type are read.
      classes: or labels, of the task.
      task: what a label is.
      physical_batch: views per backward pass.
      recipe: everything else about training.
      backend: what computes clipped sums.
      processes: that share the records of a step.
      group_records: records of a group in a step, at most.
      clock: seconds since some moment.
    """
    part = max(phase.parts, key=lambda candidate: candidate.expected_batch_size)
    records = group_records * max(1, math.ceil(part.expected_batch_size / processes))
    few = min(records, max(1, physical_batch // recipe.augmentation.multiplicity))
    device = next(model.parameters()).device
    few = few if device.type == "cuda" else min(few, _FEW)
    inputs = made_up(like, few)
    single = task is Task.SINGLE_LABEL
    labels = torch.zeros(few, dtype=torch.int64) if single else torch.zeros(few, classes).char()
    gradient = PrivateGradient(
        copy.deepcopy(model).train(),
        max_grad_norm=spec.max_grad_norm,
        noise_multiplier=part.noise_multiplier,
        expected_batch_size=part.expected_batch_size,
        physical_batch=physical_batch,
        rng=secure(),
        recipe=recipe,
        backend=backend,
    )

    def now() -> float:
        if device.type == "cuda":  # it works behind the program's back
            torch.cuda.synchronize(device)
        return clock()

    taken = []
    for _ in range(_TRIES):
        begun = now()
        total = gradient.clipped_sum(inputs, labels)
        summed = now()
        gradient.release(total, 0.0)
        taken.append((summed - begun) * records / few + now() - summed)
    gradient.close()
    return min(taken)
