"""Records of teachers with a budget of their own: cohorts beside that of all others.

They are named "budget-1", "budget-2" and so on, and are charged for the queries that their teachers
vote on. What they are charged stands under "0" as well: nobody's sum is above that of the records
whose teachers vote on all queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpal.accounting.events import Release

_PREFIX = "budget-"


def budget_cohort(number: int) -> str:
    """Name of the cohort of a budget, from 0.

    >>> budget_cohort(0)
    'budget-1'
    """
    return f"{_PREFIX}{number + 1}"


def is_budget_cohort(name: str) -> bool:
    """Whether a cohort is one of teachers with a budget of their own."""
    return name.startswith(_PREFIX)


def about_budget(releases: Sequence[Release], cohort: str) -> list[Release]:
    """What releases say of the records of such teachers, as of an only cohort."""
    told = []
    for release in releases:
        own = [charge for charge in release.charges if cohort in charge.cohorts]
        if own:
            charges = tuple(replace(charge, cohorts=("0",)) for charge in own)
            told.append(replace(release, charges=charges))
    return told


def budget_cohorts_in(releases: Sequence[Release]) -> list[str]:
    """Names of all such cohorts that releases charge, in order."""
    names = {
        name
        for release in releases
        for charge in release.charges
        for name in charge.cohorts
        if is_budget_cohort(name)
    }
    return sorted(names, key=lambda name: int(name.removeprefix(_PREFIX)))
