"""What a plan that keeps its promise may still be bad at: said before anything is paid."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpal.planning.campaign_plan import Plan
from dpal.privacy import Unit

_DROWNED = 3.0  # noise of a step over the longest mean gradient, from which little is learned
_FEW = 10  # labels a class
_PASSES = 100  # over the labels in one phase


def plan_doubts(plan: Plan, *, weights: int) -> Iterator[str]:
    """Yields what a person should think over, in sentences; all from public numbers.

    Args:
      plan: a certified one.
      weights: numbers that train.

    The noise of a step has length sigma * C * sqrt(weights) / batch on average, where C is the
    clipping norm, and the mean of clipped gradients is C long at most: what is far above is noise.
    """
    spec = plan.spec
    schedule, labels = spec.schedule, sum(phase.labels for phase in plan.phases)
    trains = spec.head is None
    if trains and schedule.batch_size > schedule.initial:
        yield (
            f"batches of {schedule.batch_size:,} are larger than the {schedule.initial:,} labels "
            "of the first phase, which trains on all of them each step; a schedule.batch_size of "
            f"{max(1, schedule.initial // 2):,} has less noise for the same promise"
        )
    if labels < _FEW * spec.model.classes:
        yield (
            f"{labels:,} labels are fewer than {_FEW} for each of {spec.model.classes:,} classes "
            "or labels; buy more (schedule.initial, schedule.queries), or join classes"
        )
    if trains and schedule.epochs_per_phase > _PASSES:
        yield (
            f"schedule.epochs_per_phase {schedule.epochs_per_phase:,} passes over few labels want "
            f"many noisy steps; {_PASSES // 3} or fewer suit private training"
        )
    if spec.target.unit is Unit.GROUP and spec.groups is None:
        yield (
            f"data set {spec.dataset} protects groups, and one record of each takes part; "
            "privacy.unit: group uses all that a group has, for the same promise, and buys labels "
            "for all of it or its first schedule.group_labels"
        )
    if not trains:
        return  # a head is solved from sums, with as much noise as it can stand
    parts = [part for phase in plan.phases for part in phase.parts if part.steps]
    drowned = max(
        part.noise_multiplier * math.sqrt(weights) / part.expected_batch_size for part in parts
    )
    if drowned > _DROWNED:
        yield (
            f"the noise of a step is {drowned:.1f} times as long as a gradient can be: "
            f"{weights:,} numbers train, each with its share of noise. Take fewer steps, "
            "larger batches, more labels or a smaller model (logistic on data.extractor scattering)"
        )
