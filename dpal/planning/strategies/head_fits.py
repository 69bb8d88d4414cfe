"""Phases that fit a head: one release of each cohort, with as little noise as it can pay for.

Cohorts pay apart, as no sum is over records of two of them. So each gets the least noise at which
it ends within its own limit: who pays for a selection first gets more than the initial cohort.
"""

from __future__ import annotations

from dpal.accounting.safe_search import smallest_safe
from dpal.planning.campaign_plan import Plan, TrainingPhase
from dpal.planning.cohort_budget import Budget
from dpal.planning.strategies.naive import assemble

_LEAST_SHARE = 0.25  # of the noise that the dearest cohort needs; the grid is fitted to that


def plan_head_fits(budget: Budget) -> Plan:
    """Solves the noise of every phase's release; no strategy has a say."""
    sigma, budget = budget.calibrate_noise()
    return assemble(budget, [_fit(budget, index, sigma) for index in range(len(budget.base))])


def _fit(budget: Budget, index: int, sigma: float) -> TrainingPhase:
    """The release of a cohort's sums.

    Where a record and its replacement may enter in different phases, phases share one noise.
    """

    def final(noise: float) -> float:
        return budget.final(index, budget.exposures(index, noise))

    noise = sigma
    if not budget.spec.entries_may_differ:
        least = smallest_safe(final, budget.limit_of(index), low=_LEAST_SHARE * sigma)
        noise = min(sigma, least)
    return TrainingPhase(
        steps=1,
        noise_multiplier=noise,
        sample_rate_old=0.0,
        sample_rate_new=1.0,
        expected_batch_size=float(budget.base[index].cohort_size),
        statistics=True,
    )
