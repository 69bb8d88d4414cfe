"""What had been spent on the same records before, and what comes to together with it.

An improved model's promise covers the model that it started from. Where that model's releases
are known, both are composed as one history; where somebody only declares what it cost, its
epsilon is added as it is, and its delta is taken off the total.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpal import check
from dpal.accounting.cohort_spending import Accountant, campaign_epsilon, second_opinion
from dpal.accounting.events import NEVER_SELECTED, Release
from dpal.privacy import PrivacyTarget


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What somebody says that a model has cost; nothing here can check it.

    Attributes:
      epsilon: of the model.
      delta: of the same claim.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.at_least(0, **{"start.declared.epsilon": self.epsilon})
        check.within(0, 0.5, **{"start.declared.delta": self.delta})


@dataclass(frozen=True, kw_only=True)
class PriorSpend:
    """What was spent on the same records before.

    Attributes:
      campaign: that spent it; None where it was none of ours.
      releases: its releases, in order; empty where they are not known.
      declared: what is said instead; None where releases are known.
    """

    campaign: str | None = None
    releases: tuple[Release, ...] = ()
    declared: Declared | None = None

    @property
    def cohorts(self) -> tuple[str, ...]:
        """Names of all cohorts that a further release is about, the never-selected last."""
        return (*(str(phase) for phase in range(self.last_phase + 1)), NEVER_SELECTED)

    @property
    def last_phase(self) -> int:
        """Of its releases."""
        return max((release.phase for release in self.releases), default=0)

    def with_more(self, releases: Sequence[Release]) -> PriorSpend:
        """The same with further releases that were charged since."""
        more = tuple(release for release in releases if release not in self.releases)
        return replace(self, releases=(*self.releases, *more))


def total_epsilon(
    before: PriorSpend | None,
    releases: Sequence[Release],
    target: PrivacyTarget,
    *,
    accountant: Accountant = Accountant.PLD,
) -> float:
    """The epsilon of everything together, at the target's delta.

    Args:
      before: what was spent before; None for nothing.
      releases: since then, in order.
      target: gives delta and adjacency.
      accountant: by which known releases are composed.

    Returns:
      An upper bound; infinity where a declared delta leaves none of the target's.
    """
    if before is None or before.declared is None:
        earlier = before.releases if before else ()
        return campaign_epsilon([*earlier, *releases], target, accountant=accountant)
    declared = before.declared
    rest = _after_declared(declared, releases, target)
    if rest is None:
        return float("inf")
    own = campaign_epsilon(releases, rest, accountant=accountant) if releases else 0.0
    return declared.epsilon + own


def total_second_opinion(
    before: PriorSpend | None, releases: Sequence[Release], target: PrivacyTarget
) -> float:
    """The same by dp-accounting."""
    if before is None or before.declared is None:
        earlier = before.releases if before else ()
        return second_opinion([*earlier, *releases], target)
    rest = _after_declared(before.declared, releases, target)
    if rest is None:
        return float("inf")
    return before.declared.epsilon + (second_opinion(releases, rest) if releases else 0.0)


def _after_declared(
    declared: Declared, releases: Sequence[Release], target: PrivacyTarget
) -> PrivacyTarget | None:
    """The target with the delta that is left for further releases; None for none."""
    if not releases:
        return target if declared.delta <= target.delta else None
    left = target.delta - declared.delta
    return replace(target, delta=left) if left > 0 else None


def declared_of(record: Mapping[str, Any] | None) -> Declared | None:
    """Reads what stands in a ledger entry or a certificate."""
    return None if record is None else Declared(epsilon=record["epsilon"], delta=record["delta"])
