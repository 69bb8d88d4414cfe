"""Nothing runs that has not been certified here, by two accountants, for every path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from dpal.accounting.accountant_tolerance import tolerance
from dpal.accounting.cohort_spending import Accountant, campaign_epsilon, second_opinion, spending
from dpal.accounting.events import VALIDATION, Release
from dpal.accounting.validation_cohort import about_validation
from dpal.canonical import canonical_json
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.campaign_plan import CertifiedPlan, CohortCertificate, Plan
from dpal.planning.campaign_spec import CampaignSpec, ProtectedValidation, SelectionMode, Strategy
from dpal.planning.cohort_budget import Budget
from dpal.planning.measured_phases import calibrated_figures, measured_counts
from dpal.planning.schedule import trial_phase
from dpal.planning.self_training import with_self_training
from dpal.planning.strategies.continual import plan_continual
from dpal.planning.strategies.head_fits import plan_head_fits
from dpal.planning.strategies.naive import plan_naive
from dpal.planning.strategies.step_amplification import (
    plan_noise_reduction,
    plan_step_amplification,
)
from dpal.privacy import PrivacyTarget

PLANNERS: dict[Strategy, Callable[[Budget], Plan]] = {
    Strategy.NAIVE: plan_naive,
    Strategy.STEP_AMPLIFICATION: plan_step_amplification,
    Strategy.NOISE_REDUCTION: plan_noise_reduction,
    Strategy.CONTINUAL: plan_continual,
}


def planner_of(spec: CampaignSpec) -> Callable[[Budget], Plan]:
    """What solves a campaign: its strategy; where a head is fitted there is one way."""
    return PLANNERS[spec.strategy] if spec.head is None else plan_head_fits


_ATTEMPTS = 6
_CLOSE = 2e-3  # relative room that is worth no further attempt
_UNSPLIT = 2.0  # epsilon that planners lose at most by splitting delta before they know how


def certified_plan(spec: CampaignSpec) -> CertifiedPlan:
    """Plans a campaign by its strategy and certifies the result.

    Cohorts are solved one by one. The envelope over all paths lies a little higher; where
    it passes the target, the plan is solved again that much below it. Where answers decide on
    the paths, that concerns the cohorts that they lead to, and not the initial one. Where secret
    coins draw the initial cohort, the envelope lies lower, and the plan is solved above it.

    A plan follows from its specification alone, so that the last ones are kept and not made again.

    Raises:
      PlanRejected: no plan keeps the promise.
      ParameterError: an adaptive clipping bound's count has too little noise for some part.
    """
    return _certified_plan(spec, canonical_json(spec))


@lru_cache(maxsize=64)
def _certified_plan(spec: CampaignSpec, written: str) -> CertifiedPlan:
    """The plan of a specification, and of its text: 8 and 8.0 are equal and have two digests."""
    wanted, limit = spec.planning_epsilon, spec.planning_epsilon
    highest = wanted + _UNSPLIT * spec.splits_budget
    tried: list[tuple[float, float]] = []  # limits, and what the envelope came to
    best: Plan | None = None
    for _ in range(_ATTEMPTS):
        budget = Budget(spec, limit, initial_limit=wanted if _is_asked(spec) else None)
        plan = with_self_training(_searched(planner_of(spec)(budget)), budget)
        reached = campaign_epsilon(list(plan.releases()), spec.target, accountant=spec.accountant)
        tried.append((limit, reached))
        if reached <= wanted:
            best = plan
            if wanted - reached < _CLOSE * wanted or limit == highest:
                break
        limit = min(highest, _next_limit(tried, wanted))
        if not limit > wanted / 2:  # the envelope is far above: there is no plan this way
            break
    chosen = best or plan
    for phase in chosen.phases:
        for part in phase.parts:  # in the middle of the campaign it would be too late
            spec.recipe.clipping.gradient_noise(
                part.noise_multiplier, expected_batch_size=part.expected_batch_size
            )
    return certify_plan(_measured(chosen))


def _searched(plan: Plan) -> Plan:
    """The same, with the trials of a search: trainings of phase 0, of as many steps as they take.

    Budgets count them (`Budget.exposures`), at the noise of phase 0.
    """
    search = plan.spec.search
    if search is None:
        return plan
    steps = trial_phase(plan.spec.schedule, search.epochs).steps
    return replace(plan, trial=replace(plan.phases[0].training, steps=steps))


def _measured(plan: Plan) -> Plan:
    """The same, with figures of every model where the records that they are of are protected."""
    spec = plan.spec
    if spec.validation is None:
        return plan
    figures = calibrated_figures(
        spec.validation,
        spec.target,
        models=len(plan.phases) + len(spec.trials),
        accountant=spec.accountant,
        counted=measured_counts(spec.model, spec.validation),
    )
    return replace(plan, figures=figures)


def certified_or_next_best(spec: CampaignSpec) -> CertifiedPlan:
    """Plans by the strategy of a campaign, or by the best other one where that keeps no promise.

    Returns:
      A certified plan. Its strategy is another one than asked for where only others certify: the
      one that lets labeled records spend most of what they were promised.

    Raises:
      PlanRejected: no strategy keeps the promise; what is wrong with the one asked for.
      ParameterError: likewise.
    """
    try:
        return certified_plan(spec)
    except (PlanRejected, ParameterError):
        alternatives = [
            plan
            for strategy in Strategy
            if strategy is not spec.strategy and (plan := _certified_by(strategy, spec)) is not None
        ]
        if not alternatives:
            raise
        return max(alternatives, key=_spent_by_labeled)


def _certified_by(strategy: Strategy, spec: CampaignSpec) -> CertifiedPlan | None:
    try:
        return certified_plan(replace(spec, strategy=strategy))
    except (PlanRejected, ParameterError):
        return None


def _spent_by_labeled(certified: CertifiedPlan) -> float:
    """Epsilons of all labeled records, added up."""
    return sum(cohort.size * cohort.spent.epsilon_pld for cohort in certified.cohorts)


def _is_asked(spec: CampaignSpec) -> bool:
    """Whether every record of the pool answers, and its answer decides on its path."""
    return spec.selects and spec.selection is SelectionMode.VISIBLE


def _next_limit(tried: list[tuple[float, float]], wanted: float) -> float:
    """Where the line through the last two attempts meets the target, less a little."""
    (limit, reached), slope = tried[-1], 1.0
    if len(tried) > 1:
        before, came = tried[-2]
        if limit != before and reached != came:
            slope = min(4.0, max(0.25, (reached - came) / (limit - before)))
    aim = wanted * (1 - _CLOSE / 4)
    return limit - (reached - aim) / slope


def certify_plan(plan: Plan) -> CertifiedPlan:
    """Certifies a plan from the releases that it will make.

    Args:
      plan: any plan, whoever made it; nothing of its planner is trusted.

    Raises:
      PlanRejected: a record would end above the target by the plan's accountant, or by
        dp-accounting.
    """
    target, releases = plan.spec.target, list(plan.releases())
    certified = CertifiedPlan(
        plan=plan,
        cohorts=tuple(
            CohortCertificate(
                size=plan.cohort_size(cohort), spent=spending(cohort, releases, target)
            )
            for cohort in plan.cohorts[:-1]
        ),
        never_selected=CohortCertificate(
            size=plan.cohort_size(plan.cohorts[-1]),
            spent=spending(plan.cohorts[-1], releases, target),
        ),
        epsilon_pld=campaign_epsilon(releases, target),
        epsilon_oracle=second_opinion(releases, target),
        epsilon_rdp=campaign_epsilon(releases, target, accountant=Accountant.RDP),
        validation=None
        if plan.spec.validation is None
        else CohortCertificate(
            size=plan.spec.validation.owners, spent=spending(VALIDATION, releases, target)
        ),
    )
    # Stated as what must hold, so that NaN is refused as well.
    if not (
        certified.epsilon <= target.epsilon
        and certified.epsilon_pld <= target.epsilon
        and _agrees(certified.epsilon_oracle, tuple(releases), target)
    ):
        raise PlanRejected(
            f"a record would end at epsilon {certified.epsilon_pld:.4f} (PLD), "
            f"{certified.epsilon_oracle:.4f} (dp-accounting) or {certified.epsilon_rdp:.4f} "
            f"(RDP), above the promised {target.epsilon:g}; lower privacy.selection_epsilon or "
            "schedule.epochs_per_phase"
        )
    if plan.spec.validation is not None:
        _require_enough_counts(plan, plan.spec.validation)
        _require_paid_figures(about_validation(releases), plan.spec.validation, target)
    return certified


def _require_enough_counts(plan: Plan, validation: ProtectedValidation) -> None:
    """Requires noise for all that a validation record can move."""
    counted = measured_counts(plan.spec.model, validation)
    least = counted.squared_sensitivity(plan.spec.target.adjacency)
    if plan.figures is None or plan.figures.counts_moved < least:
        raise PlanRejected(
            f"a validation {plan.spec.target.unit} moves the counts of each phase by the root of "
            f"{least}, and the plan's figures have noise for less; make the plan anew"
        )


def _require_paid_figures(
    measured: list[Release], validation: ProtectedValidation, target: PrivacyTarget
) -> None:
    """Requires that figures keep what is promised to validation records, which may be less."""
    promised = replace(target, epsilon=validation.epsilon)
    spent = campaign_epsilon(measured, promised)
    opinion = second_opinion(measured, promised)
    if not (spent <= promised.epsilon and _agrees(opinion, tuple(measured), promised)):
        raise PlanRejected(
            f"a validation record would end at epsilon {spent:.4f} (PLD) or {opinion:.4f} "
            f"(dp-accounting), above validation.epsilon {validation.epsilon:g}; make the plan anew"
        )


def _agrees(opinion: float, releases: tuple[Release, ...], target: PrivacyTarget) -> bool:
    """Whether dp-accounting's bound keeps the promise, as far as its grid can tell."""
    return opinion <= target.epsilon or opinion <= target.epsilon + tolerance(releases, target)
