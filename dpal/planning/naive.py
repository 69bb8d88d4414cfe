"""One noise multiplier, and one rate per phase for all labeled records.

Later cohorts end far below the target; `step_amplification` spends what they leave.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpal.accounting import rdp
from dpal.accounting.calibration import smallest_safe
from dpal.errors import ParameterError
from dpal.planning.plan import Phase, Plan, TrainingPhase
from dpal.planning.schedule import BasePhase, base_phases
from dpal.planning.spec import CampaignSpec

_LOWEST_NOISE = 0.2


def plan_naive(spec: CampaignSpec) -> Plan:
    """Calibrates one noise multiplier so that every cohort ends within the target."""
    base = base_phases(spec.schedule)
    sigma = calibrate_noise(spec, base)
    phases = tuple(
        Phase(
            index=index,
            cohort_size=phase.cohort_size,
            selection_epsilon=spec.epsilon_per_selection if index else 0.0,
            training=plain_training(phase, sigma, first=index == 0),
        )
        for index, phase in enumerate(base)
    )
    return Plan(spec, phases)


def plain_training(phase: BasePhase, sigma: float, *, first: bool) -> TrainingPhase:
    """Trains old and new records of a phase at the same rate."""
    return TrainingPhase(
        steps=phase.steps,
        noise_multiplier=sigma,
        sample_rate_old=0.0 if first else phase.sample_rate,
        sample_rate_new=phase.sample_rate,
        expected_batch_size=phase.sample_rate * phase.labeled,
    )


def calibrate_noise(spec: CampaignSpec, base: Sequence[BasePhase]) -> float:
    """Finds the least noise that keeps every cohort of a base schedule within the target.

    Args:
      spec: target and selection budget.
      base: the phases.

    Returns:
      A noise multiplier at which all of them end at or below the target.

    Raises:
      ParameterError: the target is too small for the accountant.
    """
    target = spec.target
    floor = rdp.to_epsilon(np.zeros(rdp.ORDERS.size), delta=target.delta)
    if target.epsilon <= floor:
        raise ParameterError(
            f"privacy.epsilon {target.epsilon:g} is not above {floor:.3g}, the least that the "
            f"Renyi accountant can certify at delta {target.delta:.3g}; raise privacy.epsilon"
        )

    def worst(sigma: float) -> float:
        exposures = [phase.exposure(sigma) for phase in base]
        return max(
            cohort * spec.epsilon_per_selection
            + rdp.epsilon_spent(exposures[cohort:], delta=target.delta, adjacency=target.adjacency)
            for cohort in range(len(base))
        )

    return smallest_safe(worst, spec.planning_epsilon, low=_LOWEST_NOISE)
