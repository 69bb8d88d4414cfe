"""The frozen plan: everything that will be done to private records, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpal import check
from dpal.accounting.cohorts import Spending
from dpal.accounting.events import (
    NEVER_SELECTED,
    Charge,
    NoisyScores,
    PhaseExposure,
    Release,
)
from dpal.canonical import digest
from dpal.planning.spec import CampaignSpec


@dataclass(frozen=True, kw_only=True)
class TrainingPhase:
    """How one phase trains.

    Attributes:
      steps: optimizer steps, exact.
      noise_multiplier: noise standard deviation over max_grad_norm.
      sample_rate_old: rate of records labeled before this phase; 0.0 in phase 0.
      sample_rate_new: rate of the records added by this phase's selection.
      expected_batch_size: public divisor of the noisy sum.
    """

    steps: int
    noise_multiplier: float
    sample_rate_old: float
    sample_rate_new: float
    expected_batch_size: float

    def __post_init__(self) -> None:
        check.at_least(1, steps=self.steps)
        check.positive(
            noise_multiplier=self.noise_multiplier, expected_batch_size=self.expected_batch_size
        )
        check.within(
            0, 1, sample_rate_old=self.sample_rate_old, sample_rate_new=self.sample_rate_new
        )

    @property
    def old(self) -> PhaseExposure:
        """What a record labeled in an earlier phase is exposed to."""
        return self._exposure(self.sample_rate_old)

    @property
    def new(self) -> PhaseExposure:
        """What a record labeled in this phase is exposed to."""
        return self._exposure(self.sample_rate_new)

    def _exposure(self, sample_rate: float) -> PhaseExposure:
        return PhaseExposure(
            steps=self.steps, sample_rate=sample_rate, noise_multiplier=self.noise_multiplier
        )


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One round of the campaign: select and label `cohort_size` records, then train.

    Attributes:
      index: 0 for the initial phase.
      cohort_size: records added.
      selection_epsilon: loss of this phase's selection; 0.0 when it is random.
      training: how the phase trains.
    """

    index: int
    cohort_size: int
    selection_epsilon: float
    training: TrainingPhase

    @property
    def name(self) -> str:
        """Folder name, ledger prefix and MLflow run name of the phase."""
        return f"phase-{self.index}"

    @property
    def selection_release(self) -> str:
        """Name of the selection's release in the ledger."""
        return f"{self.name}/selection"

    @property
    def training_release(self) -> str:
        """Name of the training's release in the ledger."""
        return f"{self.name}/training"


@dataclass(frozen=True)
class Plan:
    """A campaign, decided. Data-independent: it knows the pool's size, nothing else of it."""

    spec: CampaignSpec
    phases: tuple[Phase, ...]

    @cached_property
    def digest(self) -> str:
        """Commits to every number that moves the guarantee or the model."""
        return digest(self)

    @property
    def cohorts(self) -> tuple[str, ...]:
        """Names of all cohorts in order of entry, the never-selected last."""
        return (*(str(phase.index) for phase in self.phases), NEVER_SELECTED)

    def cohort_size(self, cohort: str) -> int:
        """Number of records in a cohort."""
        if cohort == NEVER_SELECTED:
            return self.spec.pool_size - sum(phase.cohort_size for phase in self.phases)
        return self.phases[int(cohort)].cohort_size

    def releases(self) -> Iterator[Release]:
        """Yields everything that leaves the trusted process, in order."""
        names = self.cohorts
        for phase in self.phases:
            if phase.selection_epsilon > 0:
                scores = NoisyScores(epsilon=phase.selection_epsilon)
                unlabeled = names[phase.index :]
                yield Release(
                    name=phase.selection_release,
                    kind="selection",
                    charges=(Charge(cohorts=unlabeled, event=scores),),
                )
            charges = [Charge(cohorts=(names[phase.index],), event=phase.training.new)]
            if phase.index > 0:
                old = names[: phase.index]
                charges.insert(0, Charge(cohorts=old, event=phase.training.old))
            yield Release(name=phase.training_release, kind="training", charges=tuple(charges))

    def release(self, name: str) -> Release | None:
        """The release of this name; None for a selection that is random and free."""
        return next((release for release in self.releases() if release.name == name), None)

    def charges(self) -> list[Charge]:
        """All charges of all releases."""
        return [charge for release in self.releases() for charge in release.charges]


@dataclass(frozen=True, kw_only=True)
class CohortCertificate:
    """What one cohort of `size` records will have spent at the end."""

    size: int
    spent: Spending


@dataclass(frozen=True, kw_only=True)
class CertifiedPlan:
    """A plan and the proof that it keeps its promise for every cohort."""

    plan: Plan
    cohorts: tuple[CohortCertificate, ...]
    never_selected: CohortCertificate

    @property
    def worst_epsilon(self) -> float:
        """The campaign's epsilon: the worst cohort's, by the larger of both accountants."""
        every = (*self.cohorts, self.never_selected)
        return max(max(one.spent.epsilon_rdp, one.spent.epsilon_pld) for one in every)

    def summary(self) -> dict[str, Any]:
        """The plan as one JSON object; the contract of `dpal plan --json`."""
        spec, target = self.plan.spec, self.plan.spec.target
        return {
            "name": spec.name,
            "adjacency": target.adjacency.value,
            "unit": target.unit.value,
            "delta": target.delta,
            "target_epsilon": target.epsilon,
            "pool_size": spec.pool_size,
            "strategy": spec.strategy.value,
            "acquisition": spec.acquisition.value,
            "selection": spec.selection.value,
            "phases": [
                {
                    "phase": phase.index,
                    "steps": phase.training.steps,
                    "noise_multiplier": phase.training.noise_multiplier,
                    "sample_rate_old": phase.training.sample_rate_old,
                    "sample_rate_new": phase.training.sample_rate_new,
                    "expected_batch_size": phase.training.expected_batch_size,
                    "cohort_size": phase.cohort_size,
                }
                for phase in self.plan.phases
            ],
            "cohorts": [
                {
                    "cohort": int(one.spent.cohort),
                    "size": one.size,
                    "selection_epsilon": one.spent.selection_epsilon,
                    "epsilon_rdp": one.spent.epsilon_rdp,
                    "epsilon_pld": one.spent.epsilon_pld,
                }
                for one in self.cohorts
            ],
            "never_selected_epsilon": self.never_selected.spent.epsilon_rdp,
            "worst_epsilon": self.worst_epsilon,
            "plan_digest": self.plan.digest,
        }
