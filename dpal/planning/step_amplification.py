"""Step amplification: every cohort ends at the target, so no budget is left unused.

Records labeled late have spent little. They may be sampled more often than the old
ones; with both rates set, the phase runs more steps until the expected batch is B again.

Solved backwards from the last phase. At phase i all later phases are fixed, and
- the old rate keeps the final total of cohort 0 where the naive schedule ends it, its
  earlier phases being naive still: each naive phase is exchanged for one of equal cost;
- the new rate brings cohort i's own final total (selections, this phase, all later
  phases at their old rates) to the target. Totals after a phase are not additive, so
  solving against anything but the final total ends above the promise.
More steps mean smaller rates and a smaller batch, so the number of steps is a monotone
search; what an integer cannot meet goes into the phase's noise multiplier.

Source: Schwethelm et al. (2025), Sec. 4.3, eq. 6, with the corrections above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpal.accounting import rdp
from dpal.accounting.calibration import first_true, largest_safe
from dpal.accounting.events import PhaseExposure
from dpal.planning.naive import calibrate_noise, plain_training
from dpal.planning.plan import Phase, Plan, TrainingPhase
from dpal.planning.schedule import BasePhase, base_phases
from dpal.planning.spec import CampaignSpec

_LEAST_NOISE_SHARE = 0.25  # of the base noise; integer residuals need far less
_LEAST_RATE = 1e-9


def plan_step_amplification(spec: CampaignSpec) -> Plan:
    """Solves steps and rates of every phase so that all cohorts end at the target.

    The base noise is the naive schedule's, so naive rates are always a solution and only
    better ones are looked for.
    """
    base = base_phases(spec.schedule)
    sigma = calibrate_noise(spec, base)
    solved: list[TrainingPhase] = []
    for index in range(len(base) - 1, 0, -1):
        problem = _PhaseProblem(spec, base, index, sigma, tuple(solved))
        solved.insert(0, problem.solve())
    solved.insert(0, plain_training(base[0], sigma, first=True))
    phases = tuple(
        Phase(
            index=index,
            cohort_size=base[index].cohort_size,
            selection_epsilon=spec.epsilon_per_selection if index else 0.0,
            training=training,
        )
        for index, training in enumerate(solved)
    )
    return Plan(spec, phases)


@dataclass(frozen=True)
class _PhaseProblem:
    """One phase of the backward pass.

    Attributes:
      later: the phases after this one, already solved.
    """

    spec: CampaignSpec
    base: Sequence[BasePhase]
    index: int
    sigma: float
    later: tuple[TrainingPhase, ...]

    def solve(self) -> TrainingPhase:
        steps = self._fewest_steps()
        noise, (old, new) = self.sigma, self._rates(steps, self.sigma)
        if steps > self.base[self.index].steps:
            # One step fewer overshoots the batch; slightly less noise brings it back to B.
            less = self._noise_that_fits(steps - 1)
            rates = self._rates(steps - 1, less) if less else (0.0, 0.0)
            if self._batch(*rates) > self._batch(old, new):
                steps, noise, (old, new) = steps - 1, less, rates
        return TrainingPhase(
            steps=steps,
            noise_multiplier=noise,
            sample_rate_old=old,
            sample_rate_new=new,
            expected_batch_size=self._batch(old, new),
        )

    def _fewest_steps(self) -> int:
        """Least number of steps at which the expected batch is within B."""
        limit = self.spec.schedule.batch_size
        return first_true(
            lambda steps: self._batch(*self._rates(steps, self.sigma)) <= limit,
            low=self.base[self.index].steps,
        )

    def _noise_that_fits(self, steps: int) -> float:
        """Largest noise, up to the base noise, that keeps the expected batch within B."""
        return largest_safe(
            lambda sigma: self._batch(*self._rates(steps, sigma)),
            self.spec.schedule.batch_size,
            low=_LEAST_NOISE_SHARE * self.sigma,
            high=self.sigma,
        )

    def _batch(self, old: float, new: float) -> float:
        """Expected batch size at given rates."""
        phase = self.base[self.index]
        return old * (phase.labeled - phase.cohort_size) + new * phase.cohort_size

    def _rates(self, steps: int, sigma: float) -> tuple[float, float]:
        """Both rates at their limits for a number of steps and a noise."""
        target, charge = self.spec.planning_epsilon, self.spec.epsilon_per_selection
        earlier = [phase.exposure(self.sigma) for phase in self.base[: self.index]]
        # Never above the naive rate: where selections, not cohort 0, set the noise, cohort 0
        # has room to spare, and filling it would push later cohorts over the target.
        old = min(self.base[self.index].sample_rate, self._rate(earlier, steps, sigma, target))
        return old, self._rate([], steps, sigma, target - self.index * charge)

    def _rate(
        self, earlier: Sequence[PhaseExposure], steps: int, sigma: float, limit: float
    ) -> float:
        """Greatest rate that keeps a cohort's final training epsilon within a limit."""
        delta, adjacency = self.spec.target.delta, self.spec.target.adjacency
        elsewhere = [*earlier, *(phase.old for phase in self.later)]
        spent = np.sum(
            [np.zeros(rdp.ORDERS.size), *(rdp.curve(one, adjacency) for one in elsewhere)], axis=0
        )

        def total(rate: float) -> float:
            here = PhaseExposure(steps=steps, sample_rate=rate, noise_multiplier=sigma)
            return rdp.to_epsilon(spent + rdp.curve(here, adjacency), delta=delta)

        return largest_safe(total, limit, low=_LEAST_RATE, high=1.0)
