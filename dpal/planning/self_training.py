"""The last phase of a campaign that trains itself: all records that nobody labeled.

They were promised as much as the labeled ones, and selections have cost them little of it. The
model of the phase before, which is released anyway, gives each of them a label (a pseudo-label): a
function of that record and of what anybody may know, so that its gradient is one record's, clipped
like any other. Which records have bought labels stays as secret as it is.

Source of pseudo-labels: Lee (2013). That disjoint cohorts pay apart: docs/guarantee.md.
"""

from __future__ import annotations

from dataclasses import replace

from dpal.planning.campaign_plan import Phase, Plan, TrainingPhase
from dpal.planning.campaign_spec import CampaignSpec, SelfTraining
from dpal.planning.cohort_budget import Budget
from dpal.planning.schedule import BasePhase, base_phases
from dpal.planning.selection_steps import Remaining

_BATCHES = 10  # that the unlabeled are divided into, where nobody says how many are in a batch


def with_self_training(plan: Plan, budget: Budget) -> Plan:
    """Adds the phase in which unlabeled records train, with as little noise as their budget allows.

    Args:
      plan: all phases that buy labels, solved.
      budget: they were solved with.

    Raises:
      ParameterError: selections leave nothing for it.
    """
    wanted = plan.spec.self_training
    if wanted is None:
        return plan
    base = unlabeled_phase(wanted, plan.spec.unlabeled)
    noise = budget.least_noise_of_unlabeled(base, plan.phases[0].training.noise_multiplier)
    phase = Phase(
        index=len(plan.phases),
        cohort_size=base.cohort_size,
        selection=Remaining(),
        training=TrainingPhase(
            steps=base.steps,
            noise_multiplier=noise,
            sample_rate_old=0.0,
            sample_rate_new=base.sample_rate,
            expected_batch_size=base.sample_rate * base.cohort_size,
        ),
    )
    return replace(plan, phases=(*plan.phases, phase))


def base_of(spec: CampaignSpec) -> tuple[BasePhase, ...]:
    """All phases before their noise is chosen, as if all labeled records were treated alike."""
    base = base_phases(spec.schedule)
    if spec.self_training is None:
        return base
    return (*base, unlabeled_phase(spec.self_training, spec.unlabeled))


def unlabeled_phase(wanted: SelfTraining, unlabeled: int) -> BasePhase:
    """Steps and rate of the phase, before its noise is chosen.

    Args:
      wanted: passes and batch.
      unlabeled: records that are left, as planned.
    """
    batch = min(unlabeled, wanted.batch_size or -(-unlabeled // _BATCHES))
    return BasePhase(
        cohort_size=unlabeled,
        labeled=unlabeled,
        steps=wanted.epochs * max(1, unlabeled // batch),
        sample_rate=batch / unlabeled,
    )
