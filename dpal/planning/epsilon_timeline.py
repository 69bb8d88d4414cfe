"""How epsilon grows from release to release, for every cohort and for the whole campaign."""

from __future__ import annotations

from dataclasses import dataclass

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon, spending
from dpal.accounting.validation_cohort import about_pool
from dpal.planning.campaign_plan import Plan


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Epsilons after each release of a plan, in order.

    Attributes:
      releases: the kind and phase of each.
      cohorts: by cohort, the epsilon of its path after each release; a cohort that has not
        entered yet spends what the pool spends.
      campaign: over all paths, after each release.
      accountant: by which all of them are computed.
    """

    releases: tuple[tuple[str, int], ...]
    cohorts: dict[str, tuple[float, ...]]
    campaign: tuple[float, ...]
    accountant: Accountant


def timeline(plan: Plan) -> Timeline:
    """Adds up a plan release by release, by the accountant it was solved with."""
    releases, spec = about_pool(list(plan.releases())), plan.spec
    by_rdp = spec.accountant is Accountant.RDP
    cohorts: dict[str, list[float]] = {cohort: [] for cohort in plan.cohorts}
    campaign: list[float] = []
    for count in range(1, len(releases) + 1):
        made = releases[:count]
        for cohort, epsilons in cohorts.items():
            spent = spending(cohort, made, spec.target)
            epsilon = spent.epsilon_rdp if by_rdp else spent.epsilon_pld
            # Each certificate has its own grid; what was spent stays spent.
            epsilons.append(max([epsilon, *epsilons[-1:]]))
        whole = campaign_epsilon(made, spec.target, accountant=spec.accountant)
        campaign.append(max([whole, *campaign[-1:]]))
    return Timeline(
        releases=tuple((release.kind, release.phase) for release in releases),
        cohorts={cohort: tuple(epsilons) for cohort, epsilons in cohorts.items()},
        campaign=tuple(campaign),
        accountant=spec.accountant,
    )
