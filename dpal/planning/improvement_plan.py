"""Improving a private model with public records: what is asked for, and what it may release."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dpal.accounting.events import GUIDANCE, Charge, Release, to_record
from dpal.accounting.prior_spend import PriorSpend, total_epsilon, total_second_opinion
from dpal.errors import ParameterError, PlanRejected
from dpal.labels import Task
from dpal.models.spec import ModelSpec
from dpal.planning.plan_interface import DecidedPlan
from dpal.planning.public_selection import (
    ChoiceSpec,
    FineTuning,
    Guidance,
    PublicSelectionMethod,
    Uncertainty,
)
from dpal.privacy import Accountant, PrivacyTarget

COMPONENTS, SUPPORT = "near-private/components", "near-private/support"

_WIDEST = 2048  # embeddings; the spectral norm of the noise grows with the root of the width
_ATTEMPTS = 8
_CLOSE = 5e-3  # relative room that is worth no further attempt
_LEAST_SHARE = 0.05  # a start with less of the total learns next to nothing


@dataclass(frozen=True, kw_only=True)
class ImprovementSpec:
    """Everything that decides an improvement.

    Attributes:
      name: of the improvement.
      target: the promise for every private record, the start's cost included.
      accountant: by which the total is bounded.
      before: what the start cost.
      choice: which public records get a label.
      guidance: what is released about private records; None for nothing.
      fine_tuning: the training on bought labels.
      model: architecture of the start.
      public: digest of the public records' files.
      start_model: digest of the start's weights; None where they are still to be trained, by the
        plan whose releases are in `before`.
    """

    name: str
    target: PrivacyTarget
    accountant: Accountant
    before: PriorSpend
    choice: ChoiceSpec
    guidance: Guidance | None
    fine_tuning: FineTuning
    model: ModelSpec
    public: str
    start_model: str | None

    def require_rivals(self) -> None:
        """Requires classes that are rivals where records are ranked by the margin between two.

        Raises:
          ParameterError: a record may have several labels.
        """
        if self.model.task is not Task.MULTI_LABEL or not self.choice.ranks_by_margin:
            return
        if self.choice.method is PublicSelectionMethod.UNCERTAIN_MARGIN:
            setting, asked = "choice.method", str(self.choice.method)
            possible = PublicSelectionMethod.UNCERTAIN_ENTROPY.value
        else:
            setting, asked = "choice.uncertainty", str(self.choice.uncertainty)
            possible = Uncertainty.ENTROPY.value
        raise ParameterError.before_release(
            f"{setting} {asked} compares rival classes, and several labels of a record are none; "
            f"set {setting} to {possible}"
        ).about(setting)

    def require_width(self, width: int) -> None:
        """Requires embeddings that have so many components, before anything is released.

        Args:
          width: of the start's embeddings.

        Raises:
          ParameterError: they are too narrow; or too wide for private components.
        """
        if self.choice.method.chooses_of_candidates and self.choice.components > width:
            raise ParameterError.before_release(
                f"{self.choice.components} components of embeddings that are {width} wide are "
                f"impossible; set choice.components to at most {width}"
            )
        if self.guidance is not None and width > _WIDEST:
            raise ParameterError.before_release(
                f"embeddings are {width:,} wide, and noise on their {width * width:,} moments "
                f"would leave nothing to be seen; near_private needs at most {_WIDEST:,}, use "
                "diverse_public or a model with a narrower last layer"
            )


@dataclass(frozen=True)
class ImprovementPlan(DecidedPlan):
    """An improvement, decided: whoever runs it may only obey."""

    spec: ImprovementSpec

    @property
    def before(self) -> PriorSpend:
        """What the start cost."""
        return self.spec.before

    def releases(self) -> Iterator[Release]:
        """Yields all that is released about private records beyond the start."""
        guidance, before = self.spec.guidance, self.spec.before
        if guidance is None:
            return
        for name, event in ((COMPONENTS, guidance.components), (SUPPORT, guidance.support)):
            yield Release(
                name=name,
                kind=GUIDANCE,
                phase=before.last_phase,
                charges=(Charge(cohorts=before.cohorts, event=event),),
            )

    def release(self, name: str) -> Release:
        """The release of this name."""
        return next(release for release in self.releases() if release.name == name)


@dataclass(frozen=True, kw_only=True)
class CertifiedImprovement:
    """An improvement and the proof that it keeps its promise.

    Attributes:
      plan: what was certified.
      start_epsilon: what the start cost alone, at the same delta.
      epsilon: start and guidance together, by the plan's accountant.
      epsilon_oracle: the same by dp-accounting.
    """

    plan: ImprovementPlan
    start_epsilon: float
    epsilon: float
    epsilon_oracle: float

    def summary(self) -> dict[str, Any]:
        """The plan as one JSON object; the contract of `dpal plan --json`."""
        spec = self.plan.spec
        target, choice = spec.target, spec.choice
        return {
            "kind": "public",
            "name": spec.name,
            "adjacency": target.adjacency.value,
            "unit": target.unit.value,
            "delta": target.delta,
            "target_epsilon": target.epsilon,
            "accountant": spec.accountant.value,
            "start": spec.before.campaign,
            "declared": spec.before.declared is not None,
            "start_epsilon": self.start_epsilon,
            "epsilon": self.epsilon,
            "epsilon_oracle": self.epsilon_oracle,
            "method": choice.method.value,
            "labels": choice.labels,
            "candidates": choice.candidates,
            "components": choice.components,
            "clusters": choice.clusters,
            "each": choice.each,
            "uncertainty": choice.uncertainty.value,
            "releases": [
                {"release": release.name, **to_record(release.charges[0].event)}
                for release in self.plan.releases()
            ],
            "plan_digest": self.plan.digest,
            # What is bought is one phase on public records, for those who look at phases.
            "phases": [{"phase": 0, "cohort_size": choice.labels}],
            "blocks": [],
        }


def certify_improvement(spec: ImprovementSpec) -> CertifiedImprovement:
    """Certifies what an improvement will have cost, the start included.

    Raises:
      PlanRejected: the start alone, or both together, cost more than is promised.
    """
    plan, target = ImprovementPlan(spec), spec.target
    start = total_epsilon(spec.before, (), target, accountant=spec.accountant)
    releases = list(plan.releases())
    together = start
    if releases:
        together = total_epsilon(spec.before, releases, target, accountant=spec.accountant)
    if math.isinf(start) or math.isinf(together):
        raise PlanRejected(
            f"privacy.delta {target.delta:.3g} leaves nothing beside the delta that the start has "
            "used; set it higher"
        )
    if not start <= target.epsilon:
        raise PlanRejected(
            f"the start has cost epsilon {start:.4f} at delta {target.delta:.3g} already, and "
            f"privacy.epsilon is {target.epsilon:g}; raise it, or start from a cheaper model"
        )
    if not together <= target.epsilon:
        raise PlanRejected(
            f"start ({start:.4f}) and near_private together cost epsilon {together:.4f} at delta "
            f"{target.delta:.3g}, and privacy.epsilon is {target.epsilon:g}; lower "
            "near_private.support_epsilon or pca_epsilon, or start from a cheaper model"
        )
    return CertifiedImprovement(
        plan=plan,
        start_epsilon=start,
        epsilon=together,
        epsilon_oracle=total_second_opinion(spec.before, releases, target),
    )


def widest_start(
    spec: ImprovementSpec, before_for: Callable[[float], PriorSpend]
) -> tuple[float, PriorSpend]:
    """The largest epsilon of a start that leaves room for the guidance, within half a percent.

    Args:
      spec: the improvement; its `before` is not read.
      before_for: from an epsilon to what a start of that epsilon would cost.

    Returns:
      The epsilon, and what such a start costs.

    Raises:
      PlanRejected: the guidance alone takes all of it.
    """
    total = spec.target.epsilon
    if spec.guidance is None:
        return total, before_for(total)
    epsilon, best = 0.8 * total, None
    for _ in range(_ATTEMPTS):
        before = before_for(epsilon)
        own = list(ImprovementPlan(replace(spec, before=before)).releases())
        reached = total_epsilon(before, own, spec.target, accountant=spec.accountant)
        if reached <= total and (best is None or epsilon > best[0]):
            best = (epsilon, before)  # proven to fit: whatever comes next only improves it
        if reached <= total and total - reached < _CLOSE * total:
            break
        epsilon = math.floor(1e4 * (epsilon + total - reached - _CLOSE / 4 * total)) / 1e4
        if not epsilon > _LEAST_SHARE * total:
            break
    if best is None:
        raise PlanRejected(
            f"near_private alone takes almost all of privacy.epsilon {total:g}, and no start fits "
            "beside it; lower near_private.support_epsilon or pca_epsilon"
        )
    return best
