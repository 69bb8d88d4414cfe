"""A plan that is a list of releases and no more: for kinds of runs that need no planner."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpal.accounting.events import Release
from dpal.accounting.prior_spend import total_epsilon, total_second_opinion
from dpal.errors import PlanRejected
from dpal.ledger.release_json import release_from, release_record
from dpal.planning.plan_interface import DecidedPlan
from dpal.privacy import Accountant, PrivacyTarget


@dataclass(frozen=True, kw_only=True)
class ListedSpec:
    """What decides such a run.

    Attributes:
      name: of the run.
      target: what is promised.
      accountant: by which the promise is kept.
      settings: further public numbers, as JSON values; the plan's digest commits to them.
    """

    name: str
    target: PrivacyTarget
    accountant: Accountant = Accountant.PLD
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ListedPlan(DecidedPlan):
    """A run, decided: its releases in order, as the ledger writes them."""

    spec: ListedSpec
    listed: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, spec: ListedSpec, releases: Sequence[Release]) -> ListedPlan:
        """The plan of these releases."""
        return cls(spec, tuple(release_record(release) for release in releases))

    def releases(self) -> Iterator[Release]:
        """Yields what leaves the trusted process, in order."""
        return map(release_from, self.listed)


@dataclass(frozen=True, kw_only=True)
class CertifiedList:
    """A list of releases, and the proof that it keeps its promise.

    Attributes:
      plan: what was certified.
      epsilon: of all of it, by the plan's accountant.
      epsilon_oracle: the same by dp-accounting.
    """

    plan: ListedPlan
    epsilon: float
    epsilon_oracle: float

    def summary(self) -> dict[str, Any]:
        """The plan as one JSON object; the contract of `dpal plan --json`."""
        spec = self.plan.spec
        return {
            "name": spec.name,
            "adjacency": spec.target.adjacency.value,
            "unit": spec.target.unit.value,
            "delta": spec.target.delta,
            "target_epsilon": spec.target.epsilon,
            "accountant": spec.accountant.value,
            "epsilon": self.epsilon,
            "epsilon_oracle": self.epsilon_oracle,
            "releases": list(self.plan.listed),
            "settings": dict(spec.settings),
            "plan_digest": self.plan.digest,
            "phases": [],
        }


def certify_list(plan: ListedPlan) -> CertifiedList:
    """Certifies what a list of releases costs.

    Raises:
      PlanRejected: that is more than is promised, or no certificate could state it.
    """
    releases, target = list(plan.releases()), plan.target
    epsilon = total_epsilon(None, releases, target, accountant=plan.accountant)
    if math.isfinite(epsilon) and not epsilon <= target.epsilon:
        raise PlanRejected.before_release(
            f"{plan.spec.name} would cost epsilon {epsilon:.4f} at delta {target.delta:.3g}, and "
            f"{target.epsilon:g} is promised; add noise, or release less"
        )
    # A certificate states them all: what one cannot add up is refused before anything is held.
    by_losses = total_epsilon(None, releases, target)
    second = total_second_opinion(None, releases, target)
    if not all(map(math.isfinite, (epsilon, by_losses, second))):
        raise PlanRejected.before_release(
            f"no epsilon of {plan.spec.name} is finite at delta {target.delta:.3g} by privacy loss "
            "distributions, which its certificate states, too; use a larger delta, such as 1e-10"
        )
    return CertifiedList(plan=plan, epsilon=epsilon, epsilon_oracle=second)
