"""The loss of a cohort: its selections, then its training.

Which cohort a record joins depends on noisy scores, so a cohort cannot be accounted for
as if its membership had been fixed beforehand. Basic composition of the pure selection
losses with the (epsilon, delta) of the training that follows is valid for every such
rule (docs/guarantee.md, "Selection, then training").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpal.accounting import oracle, rdp
from dpal.accounting.events import Charge, Event, NoisyScores, PhaseExposure
from dpal.privacy import Adjacency, PrivacyTarget


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that happened to one cohort.

    Attributes:
      selections: noisy scores released about its records.
      training: exposures to DP-SGD, one per phase.
    """

    selections: tuple[NoisyScores, ...] = ()
    training: tuple[PhaseExposure, ...] = ()

    @property
    def selection_epsilon(self) -> float:
        """Pure loss of all selections."""
        return sum(selection.epsilon for selection in self.selections)

    def epsilon_rdp(self, *, delta: float, adjacency: Adjacency) -> float:
        """Selections plus training by our Rényi accountant."""
        trained = rdp.epsilon_spent(self.training, delta=delta, adjacency=adjacency)
        return self.selection_epsilon + trained

    def epsilon_pld(self, *, delta: float, adjacency: Adjacency) -> float:
        """Selections plus training by dp-accounting's privacy loss distributions."""
        if not any(phase.steps and phase.sample_rate for phase in self.training):
            return self.selection_epsilon
        trained = oracle.epsilon_by_pld(self.training, delta=delta, adjacency=adjacency)
        return self.selection_epsilon + trained


def history_of(cohort: str, charges: Sequence[Charge]) -> History:
    """Collects what a list of charges did to one cohort."""
    events: list[Event] = [charge.event for charge in charges if cohort in charge.cohorts]
    return History(
        selections=tuple(event for event in events if isinstance(event, NoisyScores)),
        training=tuple(event for event in events if isinstance(event, PhaseExposure)),
    )


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What one cohort has spent, by two accountants."""

    cohort: str
    selection_epsilon: float
    epsilon_rdp: float
    epsilon_pld: float


def spending(cohort: str, charges: Sequence[Charge], target: PrivacyTarget) -> Spending:
    """Adds up what a list of charges cost one cohort.

    Args:
      cohort: name of the cohort.
      charges: of any cohorts.
      target: gives delta and adjacency.
    """
    history = history_of(cohort, charges)
    return Spending(
        cohort=cohort,
        selection_epsilon=history.selection_epsilon,
        epsilon_rdp=history.epsilon_rdp(delta=target.delta, adjacency=target.adjacency),
        epsilon_pld=history.epsilon_pld(delta=target.delta, adjacency=target.adjacency),
    )
