"""What one check of a certificate found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from dpal.errors import DpalError

# What a value of the wrong type or a missing key leads to. A certificate is a stranger's file.
MALFORMED = (DpalError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


class CheckOutcome(StrEnum):
    """Ok, failed, or not checked, which proves nothing."""

    OK = "ok"
    FAILED = "FAILED"
    UNCHECKED = "not checked"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of a verification.

    Attributes:
      name: what was looked at.
      outcome: what came of it.
      detail: numbers that were compared, what a failure means, or why nothing was checked.
    """

    name: str
    outcome: CheckOutcome
    detail: str


def check_from_faults(name: str, faults: Iterable[str], fine: str) -> Check:
    """A check that fails with the first of its faults, and is ok without any."""
    all_faults = list(faults)
    if not all_faults:
        return Check(name=name, outcome=CheckOutcome.OK, detail=fine)
    more = f" (and {len(all_faults) - 1} more)" if len(all_faults) > 1 else ""
    return Check(name=name, outcome=CheckOutcome.FAILED, detail=all_faults[0] + more)


def unchecked(name: str, reason: str) -> Check:
    """A check that could not be made."""
    return Check(name=name, outcome=CheckOutcome.UNCHECKED, detail=reason)


def any_failed(checks: Iterable[Check]) -> bool:
    """Whether any check failed."""
    return any(check.outcome is CheckOutcome.FAILED for check in checks)


def unreadable_check(name: str, error: Exception) -> Check:
    """A check that failed because something stands there that no certificate has."""
    said = str(error) if isinstance(error, DpalError) else f"{type(error).__name__}: {error}"
    detail = f"not what a certificate has there ({said})"
    return Check(name=name, outcome=CheckOutcome.FAILED, detail=detail)
