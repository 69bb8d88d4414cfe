"""What a campaign is asked to do, as frozen values. The wishes; the plan is the answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpal import check
from dpal.accounting.events import SELECTION_RANGE
from dpal.errors import ParameterError
from dpal.models.spec import ModelSpec
from dpal.privacy import PrivacyTarget


class Strategy(StrEnum):
    """How steps and sample rates follow from the schedule."""

    NAIVE = "naive"
    STEP_AMPLIFICATION = "step_amplification"


class Acquisition(StrEnum):
    """Which unlabeled records are wanted most."""

    RANDOM = "random"
    LEAST_CONFIDENCE = "least_confidence"
    MARGIN = "margin"
    ENTROPY = "entropy"


class SelectionMode(StrEnum):
    """Who can see the selection, and hence what it costs."""

    PAPER = "paper"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How many labels are bought when, and how long each phase trains.

    Attributes:
      initial: records labeled at random before the first phase.
      queries: records added by each selection, in order.
      batch_size: expected batch size B.
      epochs_per_phase: passes over the labeled records in each phase.
    """

    initial: int
    queries: tuple[int, ...]
    batch_size: int
    epochs_per_phase: int

    def __post_init__(self) -> None:
        check.at_least(
            1,
            **{
                "schedule.initial": self.initial,
                "schedule.batch_size": self.batch_size,
                "schedule.epochs_per_phase": self.epochs_per_phase,
            },
        )
        for query in self.queries:
            check.at_least(1, **{"schedule.queries": query})

    @property
    def cohort_sizes(self) -> tuple[int, ...]:
        """Records added in each phase, phase 0 first."""
        return (self.initial, *self.queries)


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """How noisy gradients become steps.

    Attributes:
      name: "sgd", "adam" or "nadam".
      learning_rate: step size.
      momentum: of SGD; the others ignore it.
      max_grad_norm: clipping norm C of one record's gradient.
    """

    name: str
    learning_rate: float
    momentum: float
    max_grad_norm: float

    def __post_init__(self) -> None:
        check.positive(
            **{
                "training.learning_rate": self.learning_rate,
                "training.max_grad_norm": self.max_grad_norm,
            }
        )
        check.within(0, 1, **{"training.momentum": self.momentum})


@dataclass(frozen=True, kw_only=True)
class CampaignSpec:
    """Everything that decides what happens to private records.

    Attributes:
      pool_size: records in the pool; public.
      target: the promise to every one of them.
      selection_epsilon: share of the promise spent on all selections together.
    """

    pool_size: int
    target: PrivacyTarget
    strategy: Strategy
    acquisition: Acquisition
    selection: SelectionMode
    selection_epsilon: float
    schedule: Schedule
    model: ModelSpec
    optimizer: OptimizerSpec
    name: str

    def __post_init__(self) -> None:
        check.at_least(0, **{"privacy.selection_epsilon": self.selection_epsilon})
        wanted = sum(self.schedule.cohort_sizes)
        if wanted > self.pool_size:
            raise ParameterError(
                f"the schedule asks for {wanted:,} labels and the pool has {self.pool_size:,} "
                "records; lower schedule.initial or schedule.queries"
            )
        if self.selection_epsilon >= self.target.epsilon:
            raise ParameterError(
                f"privacy.selection_epsilon {self.selection_epsilon:g} leaves nothing of "
                f"privacy.epsilon {self.target.epsilon:g} for training; a quarter of it "
                f"({self.target.epsilon / 4:g}) is usual"
            )
        selects = self.acquisition is not Acquisition.RANDOM and bool(self.schedule.queries)
        if selects and self.selection_epsilon == 0:
            raise ParameterError(
                f"acquisition {self.acquisition} with privacy.selection_epsilon 0 would not be "
                "private; use acquisition random or leave selection_epsilon null"
            )
        if not selects and self.selection_epsilon > 0:
            raise ParameterError(
                f"privacy.selection_epsilon {self.selection_epsilon:g} would be wasted: "
                "random selection costs nothing; leave it null or choose another acquisition"
            )

        each = self.epsilon_per_selection
        if selects and not SELECTION_RANGE[0] <= each <= SELECTION_RANGE[1]:
            raise ParameterError(
                f"privacy.selection_epsilon {self.selection_epsilon:g} is {each:.3g} for each "
                f"selection, and {SELECTION_RANGE[0]:.1g} to {SELECTION_RANGE[1]:g} can be drawn"
            )

    @property
    def planning_epsilon(self) -> float:
        """What a planner aims for: below the target by more than rounding can add up to."""
        return self.target.epsilon * (1 - 1e-9)

    @property
    def epsilon_per_selection(self) -> float:
        """What one selection may spend; 0 when selection is random."""
        return self.selection_epsilon / max(1, len(self.schedule.queries))
