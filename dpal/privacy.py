"""The words of a promise: adjacency, unit, delta.

Source: spec of the guarantee in `docs/guarantee.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpal import check
from dpal.errors import ParameterError


class Adjacency(StrEnum):
    """Which two data sets the promise cannot tell apart.

    ZERO_OUT: one record's content is blanked; its slot in the pool stays, its score is a
      constant of the range, its gradient is 0. dp-accounting: `REPLACE_SPECIAL`.
    REPLACE_ONE: one record's content is any other content. About 1.9 times the
      noise, secret draws apart.
    """

    ZERO_OUT = "zero_out"
    REPLACE_ONE = "replace_one"


class Unit(StrEnum):
    """Whose contribution is protected.

    RECORD: one record.
    GROUP: everything of one person, household or site, as a column says. All of it takes part; of a
      registered data set, where the settings say so, and else one record of each.
    """

    RECORD = "record"
    GROUP = "group"


class Accountant(StrEnum):
    """Which bound a plan is solved against. PLD is tight; RDP serves budgets across plans."""

    PLD = "pld"
    RDP = "rdp"


class DeltaPolicy(StrEnum):
    """Which deltas may be promised.

    STANDARD: below one over the pool's size.
    PAPER: up to one over the number of labels, as published results have it. For reproducing
      them: a mechanism that publishes each record with such a probability would keep the promise,
      so everything that speaks of the promise says so.
    """

    STANDARD = "standard"
    PAPER = "paper"


@dataclass(frozen=True, kw_only=True)
class PrivacyTarget:
    """What a campaign promises to every record of its pool.

    Attributes:
      epsilon: upper bound on the privacy loss (natural log).
      delta: failure probability.
      adjacency: which change of the data the bound speaks of.
      unit: whose contribution changes.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = Adjacency.ZERO_OUT
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)
        check.inside(0, 1, delta=self.delta)


def choose_delta(requested: float | None, *, pool_size: int) -> float:
    """Returns a delta that a pool of this size can accept.

    Args:
      requested: the wished delta, or None for the default of 1 / (10 * pool_size).
      pool_size: number of records in the pool, selected or not.

    Returns:
      A delta strictly below 1 / pool_size.

    Raises:
      ParameterError: the wished delta is not in (0, 1 / pool_size). A mechanism that
        publishes each record with probability delta would satisfy it.
    """
    check.at_least(1, pool_size=pool_size)
    if requested is None:
        return 1 / (10 * pool_size)
    if not 0 < requested < 1 / pool_size:
        raise ParameterError(
            f"privacy.delta {requested:g} is not below 1/{pool_size:,} (one over the pool size), "
            f"so it would allow publishing somebody's record; use {1 / (10 * pool_size):.3g} "
            "or leave it null"
        )
    return requested


def published_delta(requested: float | None, *, labels: int) -> float:
    """Returns a delta as published results have it; see `DeltaPolicy.PAPER`.

    Args:
      requested: the wished delta, or None for 1 / labels.
      labels: records that the campaign labels, in all.

    Raises:
      ParameterError: the wished delta is not in (0, 1 / labels].
    """
    check.at_least(1, labels=labels)
    if requested is None:
        return 1 / labels
    if not 0 < requested <= 1 / labels:
        raise ParameterError(
            f"privacy.delta {requested:g} is above 1/{labels:,} (one over the labels), the most "
            "that privacy.profile paper allows; lower it, or leave it null"
        )
    return requested
