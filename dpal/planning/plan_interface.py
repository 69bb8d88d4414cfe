"""What every plan and its proof have in common, whatever kind of run it is of."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol, TypeVar

from dpal.accounting.cohort_spending import Accountant
from dpal.accounting.events import Release
from dpal.accounting.prior_spend import PriorSpend
from dpal.canonical import digest
from dpal.privacy import PrivacyTarget


class RunPlan(Protocol):
    """Everything that a run may do to private records, fixed beforehand; it depends on no data."""

    @property
    def target(self) -> PrivacyTarget:
        """What is promised."""
        ...

    @property
    def accountant(self) -> Accountant:
        """By which the promise is kept."""
        ...

    @property
    def before(self) -> PriorSpend | None:
        """What was released about the same records before, and counts in the promise."""
        ...

    @property
    def digest(self) -> str:
        """Commits to every number of it."""
        ...

    def releases(self) -> Iterator[Release]:
        """Yields everything that leaves the trusted process, in order."""
        ...


class DecidedPlan:
    """What plans have that are a specification and what follows from it, a frozen dataclass each.

    Whoever runs one may only obey.

    Attributes:
      spec: what was asked for; its `target` is the promise, kept by its `accountant`.
    """

    spec: Any

    @cached_property
    def digest(self) -> str:
        """Commits to every number that moves the guarantee or the model."""
        return digest(self)

    @property
    def target(self) -> PrivacyTarget:
        """What is promised, what was spent before included."""
        target: PrivacyTarget = self.spec.target
        return target

    @property
    def accountant(self) -> Accountant:
        """By which the promise is kept."""
        accountant: Accountant = self.spec.accountant
        return accountant

    @property
    def before(self) -> PriorSpend | None:
        """Nothing beside what stands in the shares of a data set."""
        return None


P_co = TypeVar("P_co", bound=RunPlan, covariant=True)


class Certified(Protocol[P_co]):
    """A plan, and what it costs by two accountants that share nothing but its releases."""

    @property
    def plan(self) -> P_co:
        """What was certified."""
        ...

    @property
    def epsilon(self) -> float:
        """What any record may lose in all, by the plan's accountant."""
        ...

    @property
    def epsilon_oracle(self) -> float:
        """The same by dp-accounting."""
        ...

    def summary(self) -> dict[str, Any]:
        """The plan as one JSON object; the contract of `dpal plan --json`."""
        ...
