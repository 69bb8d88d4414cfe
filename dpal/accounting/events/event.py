"""What accounting asks of an event, and nothing else: no module asks which event it has.

A new event is one file beside this one, a frozen dataclass that derives from `Event`, and its name
in the list of `dpal.accounting.events`. It says what one step of it costs (`composition`), or
overrides what it knows better; what it does not say raises where it is asked. Tests hold every
registered event to the same contract (tests/accounting/test_event_contract.py).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from dpal.accounting.rdp import ORDERS, Curve
from dpal.accounting.single_step_curves import (
    Direction,
    DpEvent,
    Gaussian,
    Losses,
    MechanismStep,
    PrivacyLossDistribution,
)
from dpal.canonical import written_fields, written_name
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

Outcome = tuple[float, float]  # chances of one answer in both worlds
Cells = tuple[Losses, Losses, Losses, float]


@dataclass(frozen=True, kw_only=True)
class Event(ABC):
    """A release as accounting sees it: a mechanism with its numbers, frozen and hashable.

    Attributes:
      mechanism: names it in records. Never renamed, never given to another event.
      adds_up: whether it may be added to what campaigns on the same data set release.
      is_vote: whether it is read off ballots of teachers.
      renyi_is_tighter: whether its Rényi curve knows more than its loss distribution.
    """

    mechanism: ClassVar[str]
    adds_up: ClassVar[bool] = True
    is_vote: ClassVar[bool] = False
    renyi_is_tighter: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def examples(cls) -> tuple[Self, ...]:
        """Values from less noise to more, on which the contract of all events is tested."""

    def composition(self) -> tuple[MechanismStep, int]:
        """One step of it, and how often it happens independently.

        Raises:
          ParameterError: it is not charged by itself.
        """
        raise ParameterError(f"{type(self).__name__} has no privacy curve")

    def renyi(self, adjacency: Adjacency) -> Curve:
        """Bounds its Rényi divergence at every order of `ORDERS`, shape (n_orders,)."""
        step, count = self.composition()
        return count * step.renyi(adjacency) if count else np.zeros(ORDERS.size)

    @property
    def pure_epsilon(self) -> float | None:
        """Its largest loss; None where that is not bounded, or not by itself."""
        return None

    @property
    def delta(self) -> float:
        """Chance that its Rényi curve does not hold; taken out of the promise's delta."""
        return 0.0

    @property
    def answer(self) -> Answer | None:
        """Itself, where what it tells about one record decides whether that is selected."""
        return None

    @property
    def entry_chance(self) -> float | None:
        """Chance with which each record of the pool enters the cohort by a coin nobody sees.

        None where a draw is no secret or something else decides.
        """
        return None

    @property
    def candidate_chance(self) -> float:
        """Chance with which whom such a coin does not draw may be selected later."""
        return 1.0

    @property
    def training_steps(self) -> int | None:
        """Optimizer steps that it stands for; None where it is no training."""
        return None

    @property
    def gaussian_noise(self) -> float | None:
        """Noise multiplier of the one Gaussian release that tells as much; None for none."""
        step, count = self.composition()
        if not count or not isinstance(step, Gaussian):
            return None
        return step.noise_multiplier / math.sqrt(count)

    def thinned(self, participation: float) -> Event:
        """As records meet it whose every sample rate is multiplied by a factor in [0, 1].

        What has no sample rate asks such records as it asks all others.
        """
        return self

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """Its loss distribution by dp-accounting's own constructors, on a grid of this width."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        step, count = self.composition()
        if not count:
            return pld.identity(width)
        once = step.second_opinion(adjacency, width)
        return once if count == 1 else once.self_compose(count)

    def second_renyi(self, orders: Curve) -> Curve:
        """Of votes: the Rényi divergence once more, at any orders, by none of our tables."""
        raise ParameterError(f"{type(self).__name__} is no vote of teachers")

    def loss_cells(self, spacing: float) -> Cells | None:
        """Of selections, for the second opinion's walk over paths: a table of its losses.

        Args:
          spacing: width of a cell.

        Returns:
          The edges of the cells, their chances with the record and without it, and the chance
          beyond them; None for those of `second_opinion`.
        """
        return None

    def dp_event(self) -> DpEvent:
        """The same as an event of dp-accounting's accountants.

        Raises:
          ParameterError: they have none.
        """
        from dp_accounting import dp_event

        step, count = self.composition()
        if not count:
            return dp_event.NoOpDpEvent()
        once = step.dp_event()
        return once if count == 1 else dp_event.SelfComposedDpEvent(once, count)

    def record(self) -> dict[str, Any]:
        """Its mechanism and parameters under the names by which they are written, for JSON."""
        return {"mechanism": self.mechanism, **written_fields(self)}

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """Reads what `record` wrote; a parameter that is not in it has its default.

        Raises:
          ParameterError: a parameter is unknown or missing.
        """
        fields_by_name = {written_name(field): field for field in fields(cls)}
        told = {key: value for key, value in record.items() if key != "mechanism"}
        if unknown := sorted(told.keys() - fields_by_name):
            raise ParameterError(
                f"mechanism {cls.mechanism!r} has no parameter {', '.join(unknown)} in this "
                "version of dpal"
            )
        needed = {name for name, field in fields_by_name.items() if field.default is MISSING}
        if missing := sorted(needed - told.keys()):
            raise ParameterError(f"mechanism {cls.mechanism!r} lacks {', '.join(missing)}")
        return cls(**{fields_by_name[name].name: value for name, value in told.items()})


@dataclass(frozen=True, kw_only=True)
class Answer(Event):
    """An event that says yes or no about one record: yes leads into the phase's cohort.

    It is charged by the path that its answer leads to (`dpal.accounting.worst_path`).
    """

    def composition(self) -> tuple[MechanismStep, int]:
        """None.

        Raises:
          ParameterError: always.
        """
        raise ParameterError(f"{type(self).__name__} is charged by path, not by itself")

    @property
    def answer(self) -> Answer:
        """Itself."""
        return self

    @abstractmethod
    def outcomes(self, adjacency: Adjacency, direction: Direction, *, yes: bool) -> list[Outcome]:
        """Chances of an answer in both worlds, for every state that a record may be in."""

    @abstractmethod
    def second_outcomes(self, adjacency: Adjacency, *, removing: bool) -> list[Outcome]:
        """Chances of yes in both worlds once more, for the second opinion."""
