"""A cohort drawn by coins that nobody outside sees: it makes what the drawn lose cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from dpal import check
from dpal.accounting.events.event import Event
from dpal.accounting.rdp import ORDERS, Curve
from dpal.canonical import LATER
from dpal.errors import ParameterError
from dpal.privacy import Adjacency


@dataclass(frozen=True, kw_only=True)
class SecretDraw(Event):
    """Every record that is still in the pool tosses a coin of its own, and nobody sees any.

    It reads no record and releases nothing. Whoever entered has what happens to the cohort
    happen to it with that chance only: privacy amplification by Poisson sampling, over the whole
    campaign in place of a step. A coin may have a third side: of those it does not draw, it makes
    some candidates of later queries, and the others are neither counted nor selected by any.
    `dpal.accounting.worst_path` has the formulas, docs/guarantee.md the proof.

    Attributes:
      chance: of every record, independently of all others, in (0, 1).
      failure_probability: bound on the chance that more are drawn than may be labeled, given that
        some are left out then. Who is left out depends on others' coins, so this counts as delta.
      candidates: chance of those who are not drawn to be looked at by later queries, in (0, 1].
    """

    mechanism = "secret_draw"
    chance: float
    failure_probability: float = 0.0
    candidates: float = field(default=1.0, metadata=LATER)

    def __post_init__(self) -> None:
        check.inside(0, 1, chance=self.chance)
        check.within(0, 1, failure_probability=self.failure_probability, candidates=self.candidates)
        check.positive(candidates=self.candidates)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """From many who are drawn to few."""
        return (
            cls(chance=0.9, failure_probability=1e-9),
            cls(chance=0.3, failure_probability=1e-9),
            cls(chance=0.05),
        )

    def renyi(self, adjacency: Adjacency) -> Curve:
        """Nothing is released; that the coins are secret is not counted here."""
        return np.zeros(ORDERS.size)

    @property
    def pure_epsilon(self) -> float:
        """Nothing is released."""
        return 0.0

    @property
    def delta(self) -> float:
        """The chance that too many are drawn."""
        return self.failure_probability

    @property
    def entry_chance(self) -> float:
        """Of every record of the pool."""
        return self.chance

    @property
    def candidate_chance(self) -> float:
        """Of every record of the pool that is not drawn."""
        return self.candidates


def coin_of(events: Sequence[Event]) -> Event | None:
    """What decides who enters by one phase's selection, where coins do.

    Args:
      events: of one phase's selection, every attempt at it.

    Raises:
      ParameterError: one phase draws twice, or by coins and in another way as well. Whoever the
        first draw took and the second left would be on a path of its own.
    """
    tossed = [event for event in events if event.entry_chance is not None]
    if not tossed:
        return None
    if len(events) > 1:
        raise ParameterError(
            "a phase whose records are drawn by secret coins selects once and in no other way, and "
            f"{len(events)} events of its selection are counted"
        )
    return tossed[0]
