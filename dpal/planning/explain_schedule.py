"""Why a plan has its noise and its steps, in words."""

from __future__ import annotations

from typing import Any

from dpal.planning.campaign_plan import CertifiedPlan, Plan
from dpal.planning.campaign_spec import Strategy
from dpal.planning.cohort_budget import Budget
from dpal.planning.explain_words import (
    ROUNDED,
    Remark,
    cohorts_set,
    first_noise,
    listed,
    more,
    total_steps,
)

_LESS_NOISE = 0.99  # of the planned noise, to show how tight it is
_CLOSE = 5e-3  # relative; a cohort this near to the most loss limits the plan as well


def noise(certified: CertifiedPlan) -> Remark:
    """Which cohort the noise is for, and how tight it is."""
    sigma, finals = first_noise(certified.plan), _naive_finals(certified.plan, 1.0)
    tighter = _naive_finals(certified.plan, _LESS_NOISE)
    most = max(finals.values())
    limiting = [cohort for cohort, epsilon in finals.items() if epsilon > most * (1 - _CLOSE)]
    first = limiting[0]
    why = (
        "its records train in every phase, from the first step on"
        if first == "0"
        else "its records pay for selections and then train, more than the initial ones"
    )
    text = (
        f"The noise multiplier {sigma:.4f} is the least at which the schedule (steps and "
        f"rates as if all labeled records were treated alike) stays within {most:.4f}"
        f"{_room(certified.plan, most)}. {cohorts_set(limiting)} the limit: {why}. With "
        f"{1 - _LESS_NOISE:.0%} less noise cohort {first} would end at {tighter[first]:.4f}."
    )
    return Remark(
        topic="Why this noise",
        text=text,
        numbers={
            "noise_multiplier": sigma,
            "limiting_cohorts": limiting,
            "naive_epsilon_by_cohort": finals,
            "epsilon_with_1_percent_less_noise": tighter[first],
        },
    )


def steps(certified: CertifiedPlan) -> Remark:
    """How many steps more than the naive plan, and why."""
    plan, schedule = certified.plan, certified.plan.spec.schedule
    naive = [phase.steps for phase in Budget(plan.spec, plan.spec.planning_epsilon).base]
    steps, total = [phase.steps for phase in plan.labeling_phases], total_steps(plan)
    finals = _naive_finals(certified.plan, 1.0)
    idle = min(finals, key=finals.__getitem__)
    numbers: dict[str, Any] = {"steps": steps, "naive_steps": naive}
    numbers["naive_epsilon_by_cohort"] = finals
    wasted = (
        f"under the naive schedule at this noise cohort {idle} would end at "
        f"{finals[idle]:.4f} of {plan.spec.target.epsilon:g}"
    )
    if len(plan.labeling_phases) == 1:
        text = f"{total:,} steps. There is one phase, so all strategies are the same."
        return Remark(topic="Why these steps", text=text, numbers=numbers)
    last = plan.labeling_phases[-1].training
    match plan.spec.strategy:
        case Strategy.NAIVE:
            text = (
                f"{total:,} steps, those of the schedule. Late cohorts leave budget unused: "
                f"{wasted}. Strategy step_amplification turns it into more steps."
            )
        case Strategy.STEP_AMPLIFICATION:
            text = (
                f"{total:,} steps, {more(total - sum(naive))} the schedule's {sum(naive):,}: "
                f"{wasted}. Such records may be sampled more "
                f"often, in the last phase at rate {last.sample_rate_new:.4f} and the older "
                f"ones at {last.sample_rate_old:.4f}, where both had "
                f"{_base_rate(certified.plan):.4f}. Steps were added until the expected batch is "
                f"{schedule.batch_size:,} again."
            )
        case Strategy.NOISE_REDUCTION:
            lowest = min(phase.training.noise_multiplier for phase in plan.labeling_phases)
            text = (
                f"{total:,} steps, those of the schedule: {wasted}. Such records are sampled "
                f"more often, and less noise, down to {lowest:.4f} from "
                f"{first_noise(plan):.4f}, keeps the expected batch at "
                f"{schedule.batch_size:,}."
            )
            numbers["lowest_noise"] = lowest
        case Strategy.CONTINUAL:
            alone = [
                phase.catch_up.steps if phase.catch_up else 0 for phase in plan.labeling_phases
            ]
            text = (
                f"{total:,} steps, {more(total - sum(naive))} the schedule's {sum(naive):,}: "
                f"{wasted}. So each "
                f"new cohort first trains alone, for {listed(alone[1:])} steps, until it "
                "has caught up."
            )
            numbers["catch_up_steps"] = alone
    return Remark(topic="Why these steps", text=text, numbers=numbers)


def _naive_finals(plan: Plan, share: float) -> dict[str, float]:
    """What cohorts would end with under the naive schedule at a share of the noise."""
    spec = plan.spec
    _, budget = Budget(spec, spec.planning_epsilon).calibrate_noise()
    noise_multiplier = share * first_noise(plan)
    return {
        str(cohort): budget.final(cohort, budget.exposures(cohort, noise_multiplier))
        for cohort in range(len(budget.base))
    }


def _room(plan: Plan, most: float) -> str:
    target = plan.spec.target.epsilon
    if most - target > ROUNDED:
        return f", by fixed shares of delta; over all paths that is within {target:g}"
    if target - most < ROUNDED:
        return ""
    return f", what the certificate over all paths leaves of {target:g}"


def _base_rate(plan: Plan) -> float:
    return Budget(plan.spec, plan.spec.planning_epsilon).base[-1].sample_rate
