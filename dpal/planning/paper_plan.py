"""The `paper` profile: the schedule of the published code, and what it would really spend.

Kept for comparison. It is no strategy, so no configuration can ask for it and nothing can
run it. It equalises epsilons after every phase, and epsilons do not add up: records end
above the promise by the very accountant it was solved with.

Source: the code published with Schwethelm et al. (2025), its mode "step_ampl_prob", as
found by running it: the brackets of its searches are kept, the unsafe ends included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dpal.accounting import rdp
from dpal.accounting.cohort_spending import Accountant, Spending, campaign_epsilon, spending
from dpal.accounting.events import Event, PhaseExposure, to_record
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Phase, Plan, TrainingPhase
from dpal.planning.campaign_spec import CampaignSpec, Schedule, SelectionMode, Strategy
from dpal.planning.schedule import BasePhase, base_phases
from dpal.planning.selection_steps import design_selections

USUAL_SHARE = 0.25  # of epsilon for selections: 2 of 8 in the paper

_NOISE_BRACKET, _EPSILON_TOLERANCE = 10.0, 0.01
_LEAST_RATE, _RATE_PRECISION = 1e-9, 1e-3
_MOST_STEPS, _BATCH_TOLERANCE = 3, 2.0  # times the naive steps; records
_UNACCOUNTABLE = 1e-3  # a noise multiplier below which no grid holds the losses


@dataclass(frozen=True, kw_only=True)
class PublishedSchedule:
    """The published schedule for one campaign. Not certified, and not for running.

    Attributes:
      plan: its steps, rates and noise.
      cohorts: what every cohort would spend, the never-selected last.
      epsilon_rdp: the worst path by Rényi bounds and basic composition, its own accountant.
      epsilon_pld: over all paths, by privacy loss distributions.
      epsilon_as_run: the same with phase 0 as the published code runs it: with the noise
        divided by max_grad_norm. Infinite where nothing can be accounted for.
    """

    plan: Plan
    cohorts: tuple[Spending, ...]
    epsilon_rdp: float
    epsilon_pld: float
    epsilon_as_run: float

    @property
    def epsilon(self) -> float:
        """By the accountant that it was solved with."""
        return self.epsilon_rdp

    @property
    def keeps_its_promise(self) -> bool:
        """Whether its own accountant finds no record above the promise."""
        return self.epsilon_rdp <= self.plan.spec.target.epsilon

    def summary(self) -> dict[str, Any]:
        """One JSON object, with the keys of a certified plan where it has them."""
        plan, spec, target = self.plan, self.plan.spec, self.plan.spec.target
        return {
            "name": spec.name,
            "profile": "published",
            "certified": False,
            "keeps_its_promise": self.keeps_its_promise,
            "adjacency": target.adjacency.value,
            "unit": target.unit.value,
            "delta": target.delta,
            "target_epsilon": target.epsilon,
            "pool_size": spec.pool_size,
            "acquisition": spec.acquisition.value,
            "selection": spec.selection.value,
            "accountant": spec.accountant.value,
            "phases": [
                {
                    "phase": phase.index,
                    "cohort_size": phase.cohort_size,
                    "selection": [to_record(event) for event in phase.selection.events],
                    "catch_up_steps": 0,
                    "catch_up_rate": 0.0,
                    **asdict(phase.training),
                }
                for phase in plan.phases
            ],
            "cohorts": [
                {
                    "cohort": int(spent.cohort),
                    "size": plan.cohort_size(spent.cohort),
                    "selection_epsilon": spent.selection_epsilon,
                    "epsilon_rdp": spent.epsilon_rdp,
                    "epsilon_pld": spent.epsilon_pld,
                }
                for spent in self.cohorts[:-1]
            ],
            "never_selected_epsilon": self.cohorts[-1].epsilon_pld,
            "epsilon_rdp": self.epsilon_rdp,
            "epsilon_pld": self.epsilon_pld,
            # JSON knows no infinity.
            "epsilon_as_run": self.epsilon_as_run if math.isfinite(self.epsilon_as_run) else None,
            "worst_epsilon": self.epsilon,
        }


def published_schedule(spec: CampaignSpec) -> PublishedSchedule:
    """Solves the published schedule for a campaign and adds up what it would spend.

    Selection is by noisy scores whatever the campaign wishes, at its selection_epsilon or a
    quarter of epsilon. The schedule is solved for zero-out, as published; the spending is
    under the campaign's own adjacency.

    Raises:
      ParameterError: the published planner or its training fails on these sizes.
    """
    spec = _as_published(spec)
    plan = _solve(spec, published_phases(spec.schedule))
    releases, target = list(plan.releases()), spec.target
    return PublishedSchedule(
        plan=plan,
        cohorts=tuple(spending(cohort, releases, target) for cohort in plan.cohorts),
        epsilon_rdp=campaign_epsilon(releases, target, accountant=Accountant.RDP),
        epsilon_pld=campaign_epsilon(releases, target),
        epsilon_as_run=_as_run(plan),
    )


def published_phases(schedule: Schedule) -> tuple[BasePhase, ...]:
    """The published schedule: one over the whole number of batches is the rate."""
    return tuple(
        replace(phase, sample_rate=1 / max(1, phase.labeled // schedule.batch_size))
        for phase in base_phases(schedule)
    )


def _as_published(spec: CampaignSpec) -> CampaignSpec:
    share = 0.0
    if spec.selects:
        share = spec.selection_epsilon or USUAL_SHARE * spec.target.epsilon
    return spec.varied(
        accountant=Accountant.RDP,
        strategy=Strategy.STEP_AMPLIFICATION,
        selection=SelectionMode.PAPER,
        selection_epsilon=share,
        search=None,
        head=None,
    )


def _solve(spec: CampaignSpec, base: Sequence[BasePhase]) -> Plan:
    batch, delta = spec.schedule.batch_size, spec.target.delta
    for index, phase in enumerate(base):
        least = batch if index == 0 else 2 * batch
        if phase.labeled < least:
            raise ParameterError(
                f"the published code fails with fewer than {least:,} labeled records in phase "
                f"{index}, and the schedule has {phase.labeled:,}; lower schedule.batch_size to "
                f"{phase.labeled * batch // least:,} to see what it would plan"
            )
    sigma = _noise(base, spec.target.epsilon, delta)
    first = base[0]
    solved = [_training(first, sigma, first.steps, (0.0, first.sample_rate))]
    for index in range(1, len(base)):
        history = [solved[0].new, *(phase.old for phase in solved[1:])]
        charged = spec.selection_epsilon * index / len(spec.schedule.queries)
        steps, rates = _amplified(base[index], batch, sigma, history, charged, delta)
        solved.append(_training(base[index], sigma, steps, rates))
    return Plan(
        spec,
        tuple(
            Phase(
                index=index, cohort_size=phase.cohort_size, selection=selection, training=training
            )
            for index, (phase, selection, training) in enumerate(
                zip(base, design_selections(spec), solved, strict=True)
            )
        ),
    )


def _noise(base: Sequence[BasePhase], target: float, delta: float) -> float:
    """One noise multiplier that takes the initial records to the target, or 0.01 below."""

    def spent(sigma: float) -> float:
        return rdp.epsilon_spent([phase.exposure(sigma) for phase in base], delta=delta)

    low, high = 0.0, _NOISE_BRACKET
    reached = spent(high)
    while reached > target:
        low, high = high, 2 * high
        reached = spent(high)
        if high > 1e6:
            raise ParameterError(
                f"privacy.epsilon {target:g} is below what the published accountant can show"
            )
    while target - reached > _EPSILON_TOLERANCE:
        middle = (low + high) / 2
        epsilon = spent(middle)
        if epsilon < target:
            high, reached = middle, epsilon
        else:
            low = middle
    return high


def _amplified(
    phase: BasePhase,
    batch: int,
    sigma: float,
    history: Sequence[Event],
    charged: float,
    delta: float,
) -> tuple[int, tuple[float, float]]:
    """Steps and both rates that equalise epsilons after the phase.

    The steps are the end of a bracket, the rates those of the last steps tried: in the
    published plans up to three steps apart.
    """
    old_target = rdp.epsilon_spent([*history, phase.exposure(sigma)], delta=delta)

    def rates(steps: int) -> tuple[float, float]:
        def rate(before: Sequence[Event], target: float) -> float:
            step = PhaseExposure(steps=steps, sample_rate=1.0, noise_multiplier=sigma)
            return _rate(
                lambda chance: rdp.epsilon_spent(
                    [*before, replace(step, sample_rate=chance)], delta=delta
                ),
                target,
            )

        return rate(history, old_target), rate([], old_target - charged)

    low, high = phase.steps, _MOST_STEPS * phase.steps
    while True:
        steps = round((low + high) / 2)
        exhausted = steps in (low, high)
        both_rates = rates(steps)
        missing = batch - _batch(phase, both_rates)
        if missing < 0:
            low = steps
        else:
            high = steps
        if exhausted or abs(missing) <= _BATCH_TOLERANCE:
            return high, both_rates


def _rate(spent: Callable[[float], float], target: float) -> float:
    """A rate that reaches the target, from above."""
    low, high = _LEAST_RATE, 1.0
    while low / high < 1 - _RATE_PRECISION:
        middle = (low + high) / 2
        if spent(middle) < target:
            low = middle
        else:
            high = middle
    return high


def _training(
    phase: BasePhase, sigma: float, steps: int, rates: tuple[float, float]
) -> TrainingPhase:
    return TrainingPhase(
        steps=steps,
        noise_multiplier=sigma,
        sample_rate_old=rates[0],
        sample_rate_new=rates[1],
        expected_batch_size=_batch(phase, rates),
    )


def _batch(phase: BasePhase, rates: tuple[float, float]) -> float:
    return rates[0] * (phase.labeled - phase.cohort_size) + rates[1] * phase.cohort_size


def _as_run(plan: Plan) -> float:
    """All paths, with phase 0's noise as the published code draws it."""
    first = plan.phases[0]
    noise = first.training.noise_multiplier / plan.spec.optimizer.max_grad_norm
    if noise < _UNACCOUNTABLE:
        return math.inf
    quieter = replace(first, training=replace(first.training, noise_multiplier=noise))
    try:
        run = Plan(plan.spec, (quieter, *plan.phases[1:]))
        return campaign_epsilon(list(run.releases()), plan.spec.target)
    except ParameterError:
        return math.inf  # losses beyond any grid
