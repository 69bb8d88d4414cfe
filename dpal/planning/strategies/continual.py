"""Continual training: the new cohort trains alone until it has caught up.

Then all labeled records train together at the naive rate. Later cohorts end at the
target like under step amplification, but the model sees the new records only for a
while and forgets (Schwethelm et al. 2025, App. B, Table 4: the worst of the three).
"""

from __future__ import annotations

from dataclasses import replace

from dpal.accounting.events import PhaseExposure
from dpal.accounting.safe_search import first_true, largest_safe
from dpal.planning.campaign_plan import Plan, TrainingPhase
from dpal.planning.cohort_budget import Budget
from dpal.planning.strategies.naive import assemble, plain_training

_LEAST_RATE = 1e-9


def plan_continual(budget: Budget) -> Plan:
    """Solves how long each new cohort trains alone, so that it ends at the target."""
    sigma, budget = budget.calibrate_noise()
    together = [
        plain_training(phase, sigma, first=index == 0) for index, phase in enumerate(budget.base)
    ]
    alone = [None, *(_catch_up(budget, together, index) for index in range(1, len(together)))]
    return assemble(budget, together, alone)


def _catch_up(budget: Budget, together: list[TrainingPhase], index: int) -> TrainingPhase | None:
    """Steps on the new cohort alone, with batches of B or the whole cohort."""
    size, sigma = budget.base[index].cohort_size, together[index].noise_multiplier
    highest = min(1.0, budget.spec.schedule.batch_size / size)
    joint = [together[index].new, *(phase.old for phase in together[index + 1 :])]
    here = PhaseExposure(steps=1, sample_rate=highest, noise_multiplier=sigma)

    def final(steps: int, rate: float) -> float:
        return budget.final(index, [*joint, replace(here, steps=steps, sample_rate=rate)])

    if final(1, highest) > budget.limit:
        return None  # caught up already
    # One step more than the limit allows; a slightly lower rate makes room for it.
    steps = first_true(lambda count: final(count, highest) > budget.limit, low=1)
    rate = largest_safe(
        lambda chance: final(steps, chance), budget.limit, low=_LEAST_RATE, high=highest
    )
    return TrainingPhase(
        steps=steps,
        noise_multiplier=sigma,
        sample_rate_old=0.0,
        sample_rate_new=rate,
        expected_batch_size=rate * size,
    )
