"""Records of a protected validation set: a cohort beside the pool's, in none of its paths.

They train nothing, and the pool's records are in no figure. One record is in one of the two, so
that what a campaign costs anybody is the larger of both sums (parallel composition, McSherry 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpal.accounting.events import NEVER_SELECTED, VALIDATION, Release


def about_pool(releases: Sequence[Release]) -> list[Release]:
    """What releases say of the pool's records: the same, less what is about the validation set."""
    return [release for release in releases if not _measures(release)]


def about_validation(releases: Sequence[Release]) -> list[Release]:
    """What releases say of a record of the validation set, as of one that nobody ever selects."""
    return [
        replace(
            release,
            phase=0,
            charges=tuple(
                replace(charge, cohorts=(NEVER_SELECTED,))
                for charge in release.charges
                if VALIDATION in charge.cohorts
            ),
        )
        for release in releases
        if _measures(release)
    ]


def _measures(release: Release) -> bool:
    return any(VALIDATION in charge.cohorts for charge in release.charges)
