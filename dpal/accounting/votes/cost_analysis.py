"""What votes cost: four ways to count, each of which says what it promises.

`data_independent` and `sharpened` hold for all votes and are what is reserved and certified.
`exact` and `papernot` depend on the votes that were cast: their numbers are private
themselves, they may not decide how many queries are asked, and `papernot` holds in one
direction only. `dpal.voting.check_cost_then_release` releases such a number with noise, at a
price (`sanitized`).

Source: docs/voting.md; the published bound in `dpal.accounting.votes.papernot`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.rdp import smallest_proven
from dpal.accounting.votes.cost_kinds import Mode as Mode
from dpal.accounting.votes.cost_kinds import VoteCostKind as VoteCostKind
from dpal.accounting.votes.cost_kinds import VoteCostProperties as VoteCostProperties
from dpal.accounting.votes.cost_kinds import claim_of as claim_of
from dpal.accounting.votes.mechanisms import PLURALITY, SCALED, Mechanism
from dpal.accounting.votes.query_costs import costs_of, table_of
from dpal.accounting.votes.query_costs import query_curve as query_curve
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError

Floats = NDArray[np.float64]

# The grid of the published analysis; and a finer one of the orders that decide large epsilons.
PUBLISHED_ORDERS: Final = np.concatenate(
    [np.arange(2, 100, 0.5), np.logspace(math.log10(100), math.log10(1000), 200)]
)
ORDERS: Final = np.unique(np.concatenate([np.arange(11, 110) / 10, PUBLISHED_ORDERS]))
_CHUNK = 1024  # queries whose curves are in memory at a time, where there is no table


class Conversion(StrEnum):
    """From Rényi divergences to (epsilon, delta).

    TIGHT: Canonne, Kamath & Steinke (2020), Prop. 12.
    CLASSIC: Mironov (2017), Prop. 3; for comparing with printed numbers.
    """

    TIGHT = "tight"
    CLASSIC = "classic"


@dataclass(frozen=True, eq=False, kw_only=True)
class Analysis:
    """Epsilon after every query.

    Attributes:
      claim: what the numbers promise.
      delta: at which they are stated.
      epsilons: (queries,), never falling.
      orders: (queries,), the Rényi order that gave each.
    """

    claim: VoteCostProperties
    delta: float
    epsilons: Floats
    orders: Floats

    def within(self, epsilon: float) -> int:
        """How many leading queries cost at most this much."""
        return int(np.searchsorted(self.epsilons, epsilon, side="right"))


def analyse(
    rule: VotingRule,
    votes: NDArray[np.number],
    *,
    mode: Mode,
    delta: float,
    orders: Floats = ORDERS,
    conversion: Conversion = Conversion.TIGHT,
    spent: Floats | None = None,
) -> Analysis:
    """Adds up what queries cost, one after the other.

    Args:
      rule: how they are answered.
      votes: (queries, labels) counts of yes, after clipping; of a plurality (queries, bins)
        votes of cast classes, in any order, filled up with zeros.
      mode: how to count.
      delta: failure probability.
      orders: (o,) Rényi orders to choose from.
      conversion: from divergences to epsilon.
      spent: (o,) divergences at these orders of what was released before; None for nothing.

    Returns:
      Epsilon after each query; the numbers of `exact` and `papernot` are private.

    Raises:
      ParameterError: the votes are no votes of so many teachers.

    >>> rule = VotingRule(mechanism=Mechanism.BINARY, teachers=50, labels=20, sigma=7.0)
    >>> votes = np.zeros((30, 20))
    >>> analysis = analyse(rule, votes, mode=Mode.SHARPENED, delta=1e-5)
    >>> analysis.within(20.0), analysis.claim.certifies
    (20, True)
    """
    check.inside(0, 1, delta=delta)
    require_votes(rule, votes)
    if mode is Mode.SANITIZED:
        raise ParameterError(
            "a sanitized cost is drawn once and charged "
            "(dpal.voting.check_cost_then_release); it cannot be looked at beforehand"
        )
    epsilons, best = [], []
    slack = _slack(orders, delta, conversion) + (0.0 if spent is None else spent)
    for converted in _converted(rule, votes, mode, orders, slack):
        positions = converted.argmin(axis=1)
        epsilons.append(np.maximum(np.take_along_axis(converted, positions[:, None], 1)[:, 0], 0.0))
        best.append(orders[positions])
    return Analysis(
        claim=claim_of(mode, rule),
        delta=delta,
        epsilons=np.concatenate(epsilons) if epsilons else np.zeros(0),
        orders=np.concatenate(best) if best else np.zeros(0),
    )


def queries_within(
    rule: VotingRule,
    *,
    epsilon: float,
    delta: float,
    mode: Mode = Mode.SHARPENED,
    orders: Floats = ORDERS,
    conversion: Conversion = Conversion.TIGHT,
) -> int:
    """How many queries a budget is sure to cover, whatever the votes are."""
    check.positive(epsilon=epsilon)
    room = epsilon - _slack(orders, delta, conversion)
    return max(0, int(np.max(np.floor(room / query_curve(rule, orders, mode=mode)))))


def epsilon_of(
    curve: Floats, orders: Floats, *, delta: float, conversion: Conversion = Conversion.TIGHT
) -> float:
    """The smallest epsilon that divergences at these orders prove; NaN proves none."""
    return smallest_proven(curve + _slack(orders, delta, conversion))


def require_votes(rule: VotingRule, votes: NDArray[np.number]) -> None:
    """Requires counts that so many teachers can have given.

    Raises:
      ParameterError: they cannot.
    """
    plural = rule.mechanism in PLURALITY
    sound = votes.ndim == 2 and bool(np.all((votes >= 0) & (votes <= rule.teachers)))
    if plural:
        sound = sound and bool(np.all(votes.sum(axis=1) == rule.teachers))
        if rule.mechanism is Mechanism.GNMAX:
            sound = sound and votes.shape[1] <= rule.labels
    else:
        sound = sound and votes.shape[1] == rule.labels
        if rule.mechanism not in SCALED:
            sound = sound and bool(np.all(votes == np.rint(votes)))
    if not sound:
        wanted = "ballots of each query" if plural else f"votes for each of {rule.labels} labels"
        raise ParameterError(f"counts are not the {wanted} of {rule.teachers} teachers")


def _converted(
    rule: VotingRule, votes: NDArray[np.number], mode: Mode, orders: Floats, slack: Floats
) -> Iterator[Floats]:
    """Epsilon by every order after each query of a chunk, (chunk, o)."""
    table = table_of(rule, mode, tuple(orders))
    if table is None:
        total = slack
        for start in range(0, len(votes), _CHUNK):
            rows = np.asarray(votes[start : start + _CHUNK], dtype=np.float64)
            running = total + np.cumsum(costs_of(rule, rows, mode, orders), axis=0)
            total = running[-1]
            yield running
        return
    # Nothing but how often each margin occurs matters: count, add up, one matrix product. A
    # column of ones brings the conversion along.
    with_slack = np.vstack([table, slack])
    sides, before = len(with_slack), np.zeros(len(with_slack))
    before[-1] = 1.0
    for start in range(0, len(votes), _CHUNK // 2):
        rows = np.asarray(votes[start : start + _CHUNK // 2], dtype=np.int64)
        cells = np.minimum(rows, rule.teachers - rows) + sides * np.arange(len(rows))[:, None]
        count = np.bincount(cells.ravel(), minlength=len(rows) * sides).reshape(len(rows), sides)
        running = before + np.cumsum(count, axis=0, dtype=np.float64)
        before = running[-1]
        yield running @ with_slack


def _slack(orders: Floats, delta: float, conversion: Conversion) -> Floats:
    if conversion is Conversion.CLASSIC:
        return np.asarray(-math.log(delta) / (orders - 1))
    return np.asarray(np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1))
