"""Releases as values: what leaves at once, and whom it charges.

A release is anything computed from private records that leaves the trusted process.
It charges cohorts: records with one privacy history, named "0", "1", ... by the phase
in which they were labeled, and `NEVER_SELECTED` for the rest of the pool; `VALIDATION` are the
records of a protected validation set, which are not in the pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpal import check
from dpal.accounting.events.event import Event

NEVER_SELECTED = "never_selected"
VALIDATION = "validation"
SELECTION, TRAINING = "selection", "training"  # kinds of releases
GUIDANCE, VOTING, FIGURES = "guidance", "voting", "figures"
TRIAL = "trial"


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One event, and the cohorts that it happens to."""

    cohorts: tuple[str, ...]
    event: Event


@dataclass(frozen=True, kw_only=True)
class Release:
    """A unit of spending: one reservation, one task run, one line of the ledger.

    Attributes:
      name: unique within a campaign, such as "phase-2/training".
      kind: "selection", "training" and "figures" of a campaign, "trial" of the settings that it
        searches among; "guidance" of a choice of public records; "voting" of an ensemble of
        teachers.
      phase: to which it belongs; the cohort of that name enters in it.
      charges: what it costs whom.
    """

    name: str
    kind: str
    phase: int
    charges: tuple[Charge, ...]

    @property
    def selects(self) -> bool:
        """Whether it picks records for labeling, before the phase's cohort enters."""
        return self.kind == SELECTION

    @property
    def trains(self) -> bool:
        """Whether it ends in a model or in what stands for one: neither selects nor measures.

        Trials of settings are not counted: their models are no phase's.
        """
        return self.kind not in (SELECTION, FIGURES, TRIAL)


def scale_sampling_rate(release: Release, participation: float) -> Release:
    """The release as records meet it whose every sample rate is multiplied by a factor.

    Selections ask such records as they ask all others.
    """
    check.within(0, 1, participation=participation)
    charges = tuple(
        replace(charge, event=charge.event.thinned(participation)) for charge in release.charges
    )
    return replace(release, charges=charges)
