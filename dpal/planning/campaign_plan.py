"""The frozen plan: everything that will be done to private records, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dpal import check
from dpal.accounting.cohort_spending import Accountant, Spending
from dpal.accounting.events import (
    NEVER_SELECTED,
    SELECTION,
    TRAINING,
    TRIAL,
    Charge,
    Event,
    NoisyFigures,
    NoisyStatistics,
    PhaseExposure,
    Release,
    to_record,
)
from dpal.canonical import LATER, plain
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.ledger.data_set_accounts import BlockShare, share_record
from dpal.planning.campaign_spec import CampaignSpec, SelectionMode
from dpal.planning.measured_phases import (
    expected_auc_half_width,
    figures_name,
    figures_release,
    headline_half_width,
)
from dpal.planning.plan_interface import DecidedPlan
from dpal.planning.selection_steps import (
    HiddenGate,
    Remaining,
    SecretRandomDraw,
    SelectionStep,
    shares_its_cap,
    starts_at_validation,
)


@dataclass(frozen=True, kw_only=True)
class TrainingPhase:
    """How one phase trains.

    Attributes:
      steps: optimizer steps, exact.
      noise_multiplier: noise standard deviation over max_grad_norm.
      sample_rate_old: rate of records labeled before this phase; 0.0 in phase 0.
      sample_rate_new: rate of the records added by this phase's selection.
      expected_batch_size: public divisor of the noisy sum.
      statistics: whether the one step releases sums over all new records, from which a head is
        fitted; noise is over what one record can change in them then.
    """

    steps: int
    noise_multiplier: float
    sample_rate_old: float
    sample_rate_new: float
    expected_batch_size: float
    statistics: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        check.at_least(1, steps=self.steps)
        check.positive(
            noise_multiplier=self.noise_multiplier, expected_batch_size=self.expected_batch_size
        )
        check.within(
            0, 1, sample_rate_old=self.sample_rate_old, sample_rate_new=self.sample_rate_new
        )
        taking_part = (self.steps, self.sample_rate_old, self.sample_rate_new)
        if self.statistics and taking_part != (1, 0.0, 1.0):
            raise ParameterError("a head is fitted in one step on all new records and on no other")

    @property
    def old(self) -> Event:
        """What a record labeled in an earlier phase is exposed to."""
        return self._exposure(self.sample_rate_old)

    @property
    def new(self) -> Event:
        """What a record labeled in this phase is exposed to."""
        return self._exposure(self.sample_rate_new)

    @property
    def either(self) -> Event:
        """What bounds a record that is old in one world and new in the other."""
        return self._exposure(max(self.sample_rate_old, self.sample_rate_new))

    def _exposure(self, sample_rate: float) -> Event:
        if self.statistics:
            return NoisyStatistics(noise_multiplier=self.noise_multiplier)
        return PhaseExposure(
            steps=self.steps, sample_rate=sample_rate, noise_multiplier=self.noise_multiplier
        )


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One round of the campaign: select and label `cohort_size` records, then train.

    Where the campaign trains itself, the last round takes all records that are left and trains on
    what the model of the round before makes of them; it buys no label.

    Attributes:
      index: 0 for the initial phase.
      cohort_size: records added; on average, where secret coins draw them.
      selection: how the phase picks its records.
      training: how the phase trains.
      catch_up: training on the new records alone, before the rest of the phase.
    """

    index: int
    cohort_size: int
    selection: SelectionStep
    training: TrainingPhase
    catch_up: TrainingPhase | None = None

    @property
    def most_labels(self) -> int:
        """Labels that it buys at most, whatever the other phases buy.

        `cohort_size`, but where secret coins draw, and where queries share a cap: one of them may
        buy all of it, if the others buy nothing (`Plan.most_labels` counts it once). None where the
        campaign trains itself.
        """
        step = self.selection
        if isinstance(step, SecretRandomDraw):
            return step.most
        return step.cap if shares_its_cap(step) else self.labels

    @property
    def is_self_training(self) -> bool:
        """Whether it takes the records that nobody labeled, on pseudo-labels."""
        return isinstance(self.selection, Remaining)

    @property
    def labels(self) -> int:
        """Labels that it buys as planned; on average, where secret coins draw."""
        return 0 if self.is_self_training else self.cohort_size

    @property
    def parts(self) -> tuple[TrainingPhase, ...]:
        """All training of the phase, in order."""
        return (self.training,) if self.catch_up is None else (self.catch_up, self.training)

    @property
    def steps(self) -> int:
        """Optimizer steps of the phase."""
        return sum(part.steps for part in self.parts)

    @property
    def records_in_words(self) -> str:
        """How many records its selection may add, and a bound where there is one for it alone."""
        if shares_its_cap(self.selection):
            return f"about {self.selection.aim:,}"
        if self.most_labels > self.cohort_size:
            return f"about {self.cohort_size:,}, at most {self.most_labels:,}"
        return f"up to {self.cohort_size:,}"

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

    @property
    def figures_release(self) -> str:
        """Name of the release of its figures, where validation records are protected."""
        return figures_name(self.index)


@dataclass(frozen=True)
class Plan(DecidedPlan):
    """A campaign, decided. Data-independent: it knows the pool's size, nothing else of it."""

    spec: CampaignSpec
    phases: tuple[Phase, ...]
    figures: NoisyFigures | None = field(default=None, metadata=LATER)  # of each phase; None: free
    trial: TrainingPhase | None = field(default=None, metadata=LATER)  # each of a search; None: no

    @property
    def cohorts(self) -> tuple[str, ...]:
        """Names of all cohorts in order of entry, the never-selected last."""
        return (*(str(phase.index) for phase in self.phases), NEVER_SELECTED)

    @property
    def labeling_phases(self) -> tuple[Phase, ...]:
        """The phases that buy labels: all but one in which the campaign trains itself."""
        return tuple(phase for phase in self.phases if not phase.is_self_training)

    def cohort_size(self, cohort: str) -> int:
        """Number of records in a cohort."""
        if cohort == NEVER_SELECTED:
            return self.spec.pool_size - sum(phase.cohort_size for phase in self.phases)
        return self.phases[int(cohort)].cohort_size

    def most_labels(self, *, upto: int) -> int:
        """Labels that are bought at most in all phases up to one; a shared cap counts once.

        Args:
          upto: number of the last of these phases.
        """
        phases = self.phases[: upto + 1]
        alone = sum(phase.most_labels for phase in phases if not shares_its_cap(phase.selection))
        shared = [phase.most_labels for phase in phases if shares_its_cap(phase.selection)]
        return alone + max(shared, default=0)

    @property
    def steps(self) -> int:
        """Optimizer steps of all phases, and of the trials before them."""
        tried = 0 if self.trial is None else len(self.spec.trials) * self.trial.steps
        return tried + sum(phase.steps for phase in self.phases)

    def releases(self) -> Iterator[Release]:
        """Yields everything that leaves the trusted process, in order."""
        for phase in self.phases:
            if phase.selection.events:
                yield self._selection_release(phase)
            if phase.index == 0 and self.trial is not None:
                yield from self._trial_releases(self.trial)
            yield self._training_release(phase)
            if self.figures is not None:
                yield figures_release(phase.index, self.figures)

    def _trial_releases(self, trial: TrainingPhase) -> Iterator[Release]:
        """What each trial of a search costs the initial cohort, and its figures their records."""
        for number, _ in enumerate(self.spec.trials, start=1):
            yield Release(
                name=trial_release(number),
                kind=TRIAL,
                phase=0,
                charges=(Charge(cohorts=self.cohorts[:1], event=trial.new),),
            )
            if self.figures is not None:
                yield figures_release(0, self.figures, trial=number)

    def _selection_release(self, phase: Phase) -> Release:
        # Where the selection is hidden, a labeled record may be in the pool of the world in
        # which it is blank, so that later thresholds count it still. The initial cohort was
        # drawn without looking and is in no pool of either world, unless an earlier campaign
        # chose it.
        still_counted = phase.index
        tossed = isinstance(phase.selection, SecretRandomDraw)  # by those in the pool alone
        if self.spec.selection is SelectionMode.HIDDEN and not tossed:
            still_counted = 0 if self.spec.carries_labels else 1
        return Release(
            name=phase.selection_release,
            kind=SELECTION,
            phase=phase.index,
            charges=tuple(
                Charge(cohorts=self.cohorts[still_counted:], event=event)
                for event in phase.selection.events
            ),
        )

    def _training_release(self, phase: Phase) -> Release:
        charges = []
        entered = self.cohorts[: phase.index]
        for part in phase.parts:
            old = entered
            if self.spec.entries_may_differ:
                old = entered[:1]  # the initial cohort is the same in both worlds
                if entered[1:]:
                    charges.append(Charge(cohorts=entered[1:], event=part.either))
            if old and part.sample_rate_old > 0:
                charges.append(Charge(cohorts=old, event=part.old))
            charges.append(Charge(cohorts=(self.cohorts[phase.index],), event=part.new))
        return Release(
            name=phase.training_release,
            kind=TRAINING,
            phase=phase.index,
            charges=tuple(charges),
        )

    def release(self, name: str) -> Release | None:
        """The release of this name; None for a selection that is random and free."""
        return next((release for release in self.releases() if release.name == name), None)


def trial_release(number: int) -> str:
    """Name of the release of a trial's model in the ledger; trials count from 1."""
    return f"phase-0/trial-{number}/training"


@dataclass(frozen=True, kw_only=True)
class CohortCertificate:
    """What one cohort of `size` records will have spent at the end."""

    size: int
    spent: Spending


@dataclass(frozen=True, kw_only=True)
class CertifiedPlan:
    """A plan and the proof that it keeps its promise, whatever path a record takes.

    Attributes:
      plan: what was certified.
      cohorts: what every cohort will have spent.
      never_selected: the rest of the pool.
      epsilon_pld: over all paths, by our privacy loss distributions.
      epsilon_oracle: the same by dp-accounting's.
      epsilon_rdp: the worst path by Rényi bounds and basic composition.
      validation: the records that figures are measured on; None where they are public.
    """

    plan: Plan
    cohorts: tuple[CohortCertificate, ...]
    never_selected: CohortCertificate
    epsilon_pld: float
    epsilon_oracle: float
    epsilon_rdp: float
    validation: CohortCertificate | None = None

    @property
    def epsilon(self) -> float:
        """The campaign's epsilon, by the accountant that it was planned with."""
        rdp = self.plan.spec.accountant is Accountant.RDP
        return self.epsilon_rdp if rdp else self.epsilon_pld

    def with_blocks(self, shares: tuple[BlockShare, ...]) -> CertifiedPlan:
        """The same for the blocks of a data set that take part; fully or at lower rates."""
        plan = replace(self.plan, spec=replace(self.plan.spec, blocks=shares))
        return replace(self, plan=plan)

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
            "accountant": spec.accountant.value,
            "blocks": [share_record(share) for share in spec.blocks],
            "carries_labels": spec.carries_labels,
            "self_training": plain(spec.self_training),
            "candidates": spec.candidates,
            "groups": plain(spec.groups),
            **({} if spec.head is None else {"head": plain(spec.head)}),
            **self._search_record(),
            "phases": [_phase_record(self.plan, phase) for phase in self.plan.phases],
            "cohorts": [
                {
                    "cohort": int(certificate.spent.cohort),
                    "size": certificate.size,
                    "selection_epsilon": certificate.spent.selection_epsilon,
                    "epsilon_rdp": certificate.spent.epsilon_rdp,
                    "epsilon_pld": certificate.spent.epsilon_pld,
                }
                for certificate in self.cohorts
            ],
            "never_selected_epsilon": self.never_selected.spent.epsilon_pld,
            **self._figures_record(),
            "epsilon_pld": self.epsilon_pld,
            "epsilon_oracle": self.epsilon_oracle,
            "epsilon_rdp": self.epsilon_rdp,
            "worst_epsilon": self.epsilon,
            "plan_digest": self.plan.digest,
        }

    def _search_record(self) -> dict[str, Any]:
        """How many trainings are tried first, and how; nothing where none is."""
        trial = self.plan.trial
        if trial is None:
            return {}
        return {"search": {"trials": len(self.plan.spec.trials), "steps": trial.steps}}

    def _area_record(self, figures: NoisyFigures) -> dict[str, Any]:
        """How precise the area under the ROC curve is, where that is released; else nothing."""
        spec = self.plan.spec
        if spec.validation is None or not spec.validation.auc:
            return {}
        labels = spec.model.classes if spec.model.task is Task.MULTI_LABEL else 1
        half = expected_auc_half_width(spec.validation.records, labels, figures.noise)
        return {"auc_half_width": half}

    def _figures_record(self) -> dict[str, Any]:
        """What figures on protected records cost them, and how precise they are; else nothing."""
        figures, protected = self.plan.figures, self.validation
        measured = self.plan.spec.validation
        if figures is None or protected is None or measured is None:
            return {}
        groups, most = measured.groups, measured.group_records
        by_rdp = self.plan.spec.accountant is Accountant.RDP
        spent, model = protected.spent, self.plan.spec.model
        return {
            "validation": {
                "records": measured.records,
                **({} if groups is None else {"groups": groups, "group_records": most}),
                **({} if measured.share is None else {"share": measured.share}),
                "epsilon": spent.epsilon_rdp if by_rdp else spent.epsilon_pld,
                "noise_multiplier": figures.noise_multiplier,
                "noise": figures.noise,
                "half_width": headline_half_width(model, measured.records, figures.noise),
                **({"figure": "micro_f1"} if model.task is Task.MULTI_LABEL else {}),
                **self._area_record(figures),
            }
        }


def _phase_record(plan: Plan, phase: Phase) -> dict[str, Any]:
    """One phase for JSON and tables."""
    training, caught, search = phase.training, phase.catch_up, {}
    if starts_at_validation(phase.selection):
        search = {"threshold_search": _search_record(phase.selection)}
    return {
        "phase": phase.index,
        "cohort_size": phase.cohort_size,
        "most_labels": phase.most_labels,
        "most_labels_in_all": plan.most_labels(upto=phase.index),
        "pseudo_labels": phase.is_self_training,
        "selection": [to_record(event) for event in phase.selection.events],
        **search,
        "catch_up_steps": caught.steps if caught else 0,
        "catch_up_rate": caught.sample_rate_new if caught else 0.0,
        "steps": training.steps,
        "noise_multiplier": training.noise_multiplier,
        "sample_rate_old": training.sample_rate_old,
        "sample_rate_new": training.sample_rate_new,
        "expected_batch_size": training.expected_batch_size,
    }


def _search_record(gate: HiddenGate) -> dict[str, Any]:
    """How a threshold is found and what may not be exceeded, as the plan fixes it."""
    return {
        "start": gate.start.value,
        "comparisons": gate.comparisons,
        "comparison_noise": gate.count_noise,
        "confirming_noise": gate.confirming_noise,
        "aim": gate.aim,
        "aim_in_all": gate.aim_in_all,
        "limit": gate.limit,
        "label_cap": gate.label_cap.value,
        "cap": gate.cap,
    }
