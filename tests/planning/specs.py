"""Campaign specs for planner tests, and what planners make of them."""

from __future__ import annotations

from typing import Any

from dpal.accounting.cohort_spending import Accountant, spending
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import (
    Acquisition,
    CampaignSpec,
    OptimizerSpec,
    Schedule,
    SelectionMode,
    SelfTraining,
    Strategy,
)
from dpal.planning.certify_campaign import PLANNERS
from dpal.planning.cohort_budget import Budget
from dpal.privacy import Adjacency, PrivacyTarget

RANDOM = "random"


def campaign(
    *,
    pool_size: int = 60_000,
    epsilon: float = 8.0,
    delta: float = 1e-6,
    accountant: Accountant = Accountant.PLD,
    selection: SelectionMode = SelectionMode.PAPER,
    selection_epsilon: float | None = None,
    threshold_noise: float | None = None,
    initial: int = 1000,
    queries: tuple[int, ...] = (500, 300, 200),
    batch_size: int = 256,
    epochs: int = 10,
    strategy: Strategy = Strategy.STEP_AMPLIFICATION,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    acquisition: Acquisition = Acquisition.ENTROPY,
    secret_draw: bool = False,
    self_training: SelfTraining | None = None,
) -> CampaignSpec:
    """A campaign; selections get a quarter of epsilon where they cost one."""
    free = selection is SelectionMode.HIDDEN or acquisition.is_random or not queries
    if selection_epsilon is None:
        selection_epsilon = 0.0 if free else epsilon / 4
    return CampaignSpec(
        name="planned",
        pool_size=pool_size,
        target=PrivacyTarget(epsilon=epsilon, delta=delta, adjacency=adjacency),
        accountant=accountant,
        strategy=strategy,
        acquisition=acquisition,
        selection=selection,
        selection_epsilon=selection_epsilon,
        threshold_noise=threshold_noise,
        secret_draw=secret_draw,
        self_training=self_training,
        schedule=Schedule(
            initial=initial, queries=queries, batch_size=batch_size, epochs_per_phase=epochs
        ),
        model=ModelSpec(name="logistic", input_shape=(8,), classes=3),
        optimizer=OptimizerSpec(name="sgd", learning_rate=0.5, momentum=0.0, max_grad_norm=1.0),
    )


def selecting(way: str, **changes: Any) -> CampaignSpec:
    """A campaign that selects in one of the modes, or by chance."""
    if way == RANDOM:
        return campaign(acquisition=Acquisition.RANDOM, **changes)
    return campaign(selection=SelectionMode(way), **changes)


def planned(spec: CampaignSpec) -> Plan:
    """Solved once, cohort by cohort, and not certified."""
    return PLANNERS[spec.strategy](Budget(spec, spec.planning_epsilon))


def cohort_epsilons(plan: Plan) -> dict[str, float]:
    """By cohort, by the accountant of the plan."""
    releases, by_rdp = list(plan.releases()), plan.spec.accountant is Accountant.RDP
    spent = {one: spending(one, releases, plan.spec.target) for one in plan.cohorts}
    return {k: one.epsilon_rdp if by_rdp else one.epsilon_pld for k, one in spent.items()}
