"""Nothing runs that has not been certified here, by two accountants, for every cohort."""

from __future__ import annotations

from collections.abc import Callable

from dpal.accounting.cohorts import spending
from dpal.errors import PlanRejected
from dpal.planning.naive import plan_naive
from dpal.planning.plan import CertifiedPlan, CohortCertificate, Plan
from dpal.planning.spec import CampaignSpec, Strategy
from dpal.planning.step_amplification import plan_step_amplification

PLANNERS: dict[Strategy, Callable[[CampaignSpec], Plan]] = {
    Strategy.NAIVE: plan_naive,
    Strategy.STEP_AMPLIFICATION: plan_step_amplification,
}


def certified_plan(spec: CampaignSpec) -> CertifiedPlan:
    """Plans a campaign by its strategy and certifies the result.

    Raises:
      PlanRejected: no plan keeps the promise for every cohort.
    """
    return verify(PLANNERS[spec.strategy](spec))


def verify(plan: Plan) -> CertifiedPlan:
    """Certifies the end state of every cohort from the events that the plan will release.

    Args:
      plan: any plan, whoever made it; nothing of its planner is trusted.

    Raises:
      PlanRejected: a cohort would end above the target by either accountant.
    """
    target, charges = plan.spec.target, plan.charges()
    certificates = []
    for cohort in plan.cohorts:
        spent = spending(cohort, charges, target)
        # Stated as what must hold, so that NaN is refused as well.
        if not max(spent.epsilon_rdp, spent.epsilon_pld) <= target.epsilon:
            raise PlanRejected(
                f"cohort {cohort} would end at epsilon {spent.epsilon_rdp:.4f} (RDP) and "
                f"{spent.epsilon_pld:.4f} (PLD), above the promised {target.epsilon:g}; lower "
                "privacy.selection_epsilon or schedule.epochs_per_phase"
            )
        certificates.append(CohortCertificate(size=plan.cohort_size(cohort), spent=spent))
    return CertifiedPlan(
        plan=plan, cohorts=tuple(certificates[:-1]), never_selected=certificates[-1]
    )
