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
search; what an integer cannot meet goes into the phase's noise multiplier. Noise
reduction keeps the number of steps and lets the noise multiplier do it all.

Source: Schwethelm et al. (2025), Sec. 4.3, eq. 6 and App. B, with the corrections above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from dpal.accounting.events import Event, PhaseExposure
from dpal.accounting.safe_search import first_true, largest_safe
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Plan, TrainingPhase
from dpal.planning.cohort_budget import Budget
from dpal.planning.schedule import BasePhase
from dpal.planning.strategies.naive import assemble, plain_training

_LEAST_NOISE_SHARE = 0.25  # of the base noise; integer residuals need far less
_LEAST_RATE = 1e-9


def plan_step_amplification(budget: Budget) -> Plan:
    """Solves steps and rates of every phase so that all cohorts end at the target.

    The base noise is the naive schedule's, so naive rates are always a solution and only
    better ones are looked for.
    """
    return _plan_backwards(budget, lambda problem: problem.amplify_steps())


def plan_noise_reduction(budget: Budget) -> Plan:
    """Keeps the steps of the schedule and lowers each phase's noise instead."""
    return _plan_backwards(budget, lambda problem: problem.reduce_noise())


@dataclass(frozen=True)
class PhaseProblem:
    """One phase of the backward pass.

    Attributes:
      budget: what every cohort may end with.
      index: of the phase.
      sigma: the base noise.
      later: the phases after this one, already solved.
    """

    budget: Budget
    index: int
    sigma: float
    later: tuple[TrainingPhase, ...]

    def amplify_steps(self) -> TrainingPhase:
        """As many steps as bring the expected batch back to B."""
        steps = self._fewest_steps()
        noise, (old, new) = self.sigma, self.rates(steps, self.sigma)
        if steps > self.base.steps:
            # One step fewer overshoots the batch; slightly less noise brings it back to B.
            less = self._noise_that_fits(steps - 1)
            rates = self.rates(steps - 1, less) if less else (0.0, 0.0)
            if self._batch(*rates) > self._batch(old, new):
                steps, noise, (old, new) = steps - 1, less, rates
        return self._training(steps, noise, old, new)

    def reduce_noise(self) -> TrainingPhase:
        """As little noise as keeps the expected batch at B."""
        steps = self.base.steps
        noise = self._noise_that_fits(steps)
        if not noise:
            raise ParameterError(
                f"phase {self.index} of strategy noise_reduction would need less than a quarter "
                "of the noise of the phases before; use strategy step_amplification"
            )
        return self._training(steps, noise, *self.rates(steps, noise))

    def rates(self, steps: int, sigma: float) -> tuple[float, float]:
        """Both rates at their limits for a number of steps and a noise."""
        own = len(self.budget.base) - self.index  # from this phase on
        earlier = self.budget.exposures(0, self.sigma)[:-own]
        # Never above the naive rate: where selections, not cohort 0, set the noise, cohort 0
        # has room to spare, and filling it would push later cohorts over the target.
        old = self._rate(0, earlier, steps, sigma, self.base.sample_rate)
        return old, self._rate(self.index, [], steps, sigma, 1.0)

    @property
    def base(self) -> BasePhase:
        """The phase as scheduled."""
        return self.budget.base[self.index]

    def _training(self, steps: int, noise: float, old: float, new: float) -> TrainingPhase:
        if not new > 0:
            raise ParameterError(
                f"the records of query {self.index} would have nothing left to train with; lower "
                "privacy.selection_epsilon or raise privacy.threshold_noise"
            )
        return TrainingPhase(
            steps=steps,
            noise_multiplier=noise,
            sample_rate_old=old,
            sample_rate_new=new,
            expected_batch_size=self._batch(old, new),
        )

    def _fewest_steps(self) -> int:
        """Least number of steps at which the expected batch is within B."""
        limit = self.budget.spec.schedule.batch_size
        return first_true(
            lambda steps: self._batch(*self.rates(steps, self.sigma)) <= limit,
            low=self.base.steps,
            guess=self._guess_steps(),
        )

    def _guess_steps(self) -> int:
        """Rates fall about like one over the square root of the steps."""
        steps = self.base.steps
        for _ in range(3):
            batch = self._batch(*self.rates(steps, self.sigma))
            share = batch / self.budget.spec.schedule.batch_size
            steps = max(self.base.steps, round(steps * share**2))
        return steps

    def _noise_that_fits(self, steps: int) -> float:
        """Largest noise, up to the base noise, that keeps the expected batch within B."""
        # Usually a step or two of noise are missing; look there first.
        for share in (1 - 2 / steps, _LEAST_NOISE_SHARE):
            noise = largest_safe(
                lambda sigma: self._batch(*self.rates(steps, sigma)),
                self.budget.spec.schedule.batch_size,
                low=max(share, _LEAST_NOISE_SHARE) * self.sigma,
                high=self.sigma,
            )
            if noise:
                break
        return noise

    def _batch(self, old: float, new: float) -> float:
        """Expected batch size at given rates."""
        return old * (self.base.labeled - self.base.cohort_size) + new * self.base.cohort_size

    def _rate(
        self,
        cohort: int,
        earlier: Sequence[Event],
        steps: int,
        sigma: float,
        highest: float,
    ) -> float:
        """Greatest rate that lets a cohort end within the limit."""
        elsewhere = [*earlier, *(phase.old for phase in self.later)]

        @cache
        def final(rate: float) -> float:
            here = PhaseExposure(steps=steps, sample_rate=rate, noise_multiplier=sigma)
            return self.budget.final(cohort, [*elsewhere, here])

        near, limit = min(highest, 3 * self.base.sample_rate), self.budget.limit_of(cohort)
        low = self.base.sample_rate / 3
        if final(low) <= limit < final(near):
            return largest_safe(final, limit, low=low, high=near)
        return largest_safe(final, limit, low=_LEAST_RATE, high=highest)


def _plan_backwards(budget: Budget, solve: Callable[[PhaseProblem], TrainingPhase]) -> Plan:
    sigma, budget = budget.calibrate_noise()
    solved: list[TrainingPhase] = []
    for index in range(len(budget.base) - 1, 0, -1):
        solved.insert(0, solve(PhaseProblem(budget, index, sigma, tuple(solved))))
    return assemble(budget, [plain_training(budget.base[0], sigma, first=True), *solved])
