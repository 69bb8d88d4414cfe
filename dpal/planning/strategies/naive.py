"""One noise multiplier, and one rate per phase for all labeled records.

Later cohorts end far below the target; the other strategies spend what they leave.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpal.planning.campaign_plan import Phase, Plan, TrainingPhase
from dpal.planning.cohort_budget import Budget
from dpal.planning.schedule import BasePhase


def plan_naive(budget: Budget) -> Plan:
    """Calibrates one noise multiplier so that every cohort ends within the limit."""
    sigma, budget = budget.calibrate_noise()
    return assemble(
        budget,
        [plain_training(phase, sigma, first=index == 0) for index, phase in enumerate(budget.base)],
    )


def plain_training(phase: BasePhase, sigma: float, *, first: bool) -> TrainingPhase:
    """Trains old and new records of a phase at the same rate."""
    return TrainingPhase(
        steps=phase.steps,
        noise_multiplier=sigma,
        sample_rate_old=0.0 if first else phase.sample_rate,
        sample_rate_new=phase.sample_rate,
        expected_batch_size=phase.sample_rate * phase.labeled,
    )


def assemble(
    budget: Budget,
    training: Sequence[TrainingPhase],
    catch_up: Sequence[TrainingPhase | None] | None = None,
) -> Plan:
    """Joins solved training with the selections of a budget."""
    before = catch_up or [None] * len(training)
    return Plan(
        budget.spec,
        tuple(
            Phase(
                index=index,
                cohort_size=base.cohort_size,
                selection=selection,
                training=trained,
                catch_up=caught,
            )
            for index, (base, selection, trained, caught) in enumerate(
                zip(budget.base, budget.selections, training, before, strict=True)
            )
        ),
    )
