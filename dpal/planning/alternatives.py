"""Plans side by side: other strategies, other ways to select, other values of a setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dpal.errors import DpalError
from dpal.planning.campaign_plan import CertifiedPlan, Plan
from dpal.planning.campaign_spec import (
    Acquisition,
    CampaignSpec,
    LabelCap,
    SelectionMode,
    Strategy,
)
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.hidden_gate import IN_VAIN
from dpal.planning.paper_plan import USUAL_SHARE
from dpal.planning.selection_steps import (
    HiddenGate,
    RandomDraw,
    SecretRandomDraw,
    VisibleAnswers,
    expected_precision,
    starts_at_validation,
)

RANDOM = "random"  # beside the selection modes: nobody looks at records


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """One way to plan a campaign, or the reason why there is none.

    Attributes:
      setting: what was varied, such as {"privacy.epsilon": 3}.
      certified: the plan.
      reason: one sentence; empty where there is a plan.
    """

    setting: Mapping[str, Any]
    certified: CertifiedPlan | None = None
    reason: str = ""

    def record(self) -> dict[str, Any]:
        """One row for JSON, tables and figures."""
        if self.certified is None:
            return {**self.setting, "planned": False, "reason": self.reason}
        plan = self.certified.plan
        target = plan.spec.target
        return {
            **self.setting,
            "planned": True,
            "reason": None,
            "target_epsilon": target.epsilon,
            "delta": target.delta,
            "adjacency": target.adjacency.value,
            "unit": target.unit.value,
            "accountant": plan.spec.accountant.value,
            "pool_size": plan.spec.pool_size,
            "first_noise": plan.phases[0].training.noise_multiplier,
            "noise_multiplier": [phase.training.noise_multiplier for phase in plan.phases],
            "steps": [phase.steps for phase in plan.phases],
            "total_steps": plan.steps,
            "sample_rate_old": [phase.training.sample_rate_old for phase in plan.phases],
            "sample_rate_new": [phase.training.sample_rate_new for phase in plan.phases],
            "expected_precision": mean_precision(plan),
            "precision_by_query": [
                precision_of(plan, query) for query in range(1, len(plan.labeling_phases))
            ],
            "precision_by_chance": mean_precision(_drawn_at_random(plan)),
            "labels": sum(phase.labels for phase in plan.phases),
            "expected_labels": expected_labels(plan),
            "worst_epsilon": self.certified.epsilon,
            "plan_digest": plan.digest,
        }


def consider(setting: Mapping[str, Any], wish: Callable[[], CampaignSpec]) -> Alternative:
    """Plans and certifies what is wished; a wish that cannot be granted keeps its reason.

    Args:
      setting: what is varied.
      wish: the campaign; may raise as planning may.
    """
    return attempt(setting, lambda: certified_plan(wish()))


def attempt(setting: Mapping[str, Any], plan: Callable[[], CertifiedPlan]) -> Alternative:
    """Plans one way; where there is no plan, the reason is kept.

    Args:
      setting: what is varied.
      plan: plans and certifies; may raise as planning may.
    """
    try:
        return Alternative(setting=setting, certified=plan())
    except DpalError as error:
        return Alternative(setting=setting, reason=str(error))


def variants(
    spec: CampaignSpec,
) -> Iterator[tuple[Mapping[str, str], Callable[[], CampaignSpec]]]:
    """Every strategy with every way to select, random selection last."""
    modes: list[str] = [RANDOM]
    if spec.selects:
        modes = [*(mode.value for mode in SelectionMode), RANDOM]
    for strategy in Strategy:
        planned = replace(spec, strategy=strategy)
        for mode in modes:
            setting = {"strategy": strategy.value, "selection": mode}
            yield setting, partial(selecting, planned, mode)


def selecting(spec: CampaignSpec, mode: str) -> CampaignSpec:
    """The campaign with another way to select.

    Args:
      spec: the campaign; its selection_epsilon, or a quarter of epsilon, pays for selections
        that cost one.
      mode: a selection mode, or "random".
    """
    if mode == RANDOM:
        return with_random_selection(spec)
    if mode == SelectionMode.HIDDEN:
        return spec.varied(selection=SelectionMode.HIDDEN, selection_epsilon=0.0)
    share = spec.selection_epsilon or USUAL_SHARE * spec.target.epsilon
    return spec.varied(selection=SelectionMode(mode), selection_epsilon=share)


def with_random_selection(spec: CampaignSpec) -> CampaignSpec:
    """The campaign with selection that looks at nothing, and so is free."""
    return spec.varied(acquisition=Acquisition.RANDOM, selection_epsilon=0.0)


def precision_of(plan: Plan, phase: int) -> float | None:
    """Expected share of a query's records that are among as many highest-scored of the pool.

    None where it depends on the scores: noisy scores find more where scores lie apart. For
    a gate, records count as equally scored where they are on its grid of scores.
    """
    share = plan.phases[phase].cohort_size / pool_at(plan, phase)
    match plan.phases[phase].selection:
        case RandomDraw() | SecretRandomDraw():
            return share
        case HiddenGate():
            # Who passes lies above who does not, and about as many as aimed at pass; of those who
            # are no candidates, as many would have.
            spec = plan.spec
            return spec.offered_to_queries / (spec.pool_size - spec.schedule.initial)
        case VisibleAnswers(aim=aim, answers=answers):
            return expected_precision(answers, share, aim / pool_at(plan, phase))
    return None


def mean_precision(plan: Plan) -> float | None:
    """`precision_of` over all queried labels; None where undefined, or nothing is queried."""
    correct, queried = 0.0, 0
    for query in range(1, len(plan.labeling_phases)):
        precision, size = precision_of(plan, query), plan.phases[query].cohort_size
        if precision is None:
            return None
        correct, queried = correct + precision * size, queried + size
    return correct / queried if queried else None


def expected_labels(plan: Plan) -> int:
    """Labels that will be bought, about: a gate keeps a reserve below its query or below all.

    It may also accept no threshold, where the cap is near: of the sum, that is the last query.
    """
    labels, phases = 0.0, plan.labeling_phases
    for phase in phases:
        gate = phase.selection
        if not isinstance(gate, HiddenGate):
            labels += phase.cohort_size
            continue
        near_cap = gate.label_cap is LabelCap.QUERY or phase is phases[-1]
        in_vain = IN_VAIN if starts_at_validation(gate) and near_cap else 0.0
        labels += gate.aim * (1 - in_vain)
    return round(labels)


def pool_at(plan: Plan, phase: int) -> int:
    """Unlabeled records before a query."""
    return plan.spec.pool_size - sum(earlier.cohort_size for earlier in plan.phases[:phase])


def _drawn_at_random(plan: Plan) -> Plan:
    return replace(
        plan,
        phases=tuple(replace(phase, selection=RandomDraw()) for phase in plan.labeling_phases),
    )
