"""What votes cost: four ways to count, each of which says what it promises.

`data_independent` and `sharpened` hold for all votes and are what is reserved and certified.
`exact` and `papernot` depend on the votes that were cast: their numbers are private
themselves, they may not decide how many queries are asked, and `papernot` holds in one
direction only. `dpal.voting.sanitized` releases such a number with noise, at a price.

Source: docs/voting.md; the published bound in `dpal.accounting.papernot`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting import papernot
from dpal.accounting.majorities import Answers, divergence, move_divergences, worst_divergence
from dpal.accounting.plurality import plurality_divergence
from dpal.accounting.voting_rules import PLURALITY, SCALED, Mechanism, VotingRule
from dpal.errors import ParameterError

Floats = NDArray[np.float64]

# The grid of the published analysis; and a finer one of the orders that decide large epsilons.
PUBLISHED_ORDERS: Final = np.concatenate(
    [np.arange(2, 100, 0.5), np.logspace(math.log10(100), math.log10(1000), 200)]
)
ORDERS: Final = np.unique(np.concatenate([np.arange(11, 110) / 10, PUBLISHED_ORDERS]))
_CHUNK = 256  # queries whose curves are in memory at a time, where there is no table


class Mode(StrEnum):
    """How a query's cost is counted.

    DATA_INDEPENDENT: as if the noisy counts were released, whatever the votes are.
    SHARPENED: by the released answers, whatever the votes are; counts where none is known.
    PAPERNOT: the published data-dependent bound.
    EXACT: by the law of the released answers, for the votes that were cast.
    """

    DATA_INDEPENDENT = "data_independent"
    SHARPENED = "sharpened"
    PAPERNOT = "papernot"
    EXACT = "exact"


class Kind(StrEnum):
    """Whether a number bounds the privacy loss, or only what it is on average."""

    GUARANTEE = "guarantee"
    EXPECTATION = "expectation"


class Conversion(StrEnum):
    """From Rényi divergences to (epsilon, delta).

    TIGHT: Canonne, Kamath & Steinke (2020), Prop. 12.
    CLASSIC: Mironov (2017), Prop. 3; for comparing with printed numbers.
    """

    TIGHT = "tight"
    CLASSIC = "classic"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a cost promises, and to whom it may be told.

    Attributes:
      mode: how it was counted.
      kind: guarantee or expectation.
      any_votes: whether it holds whatever the votes are; if not, the number is private.
      both_directions: whether it bounds the divergence both ways; (epsilon, delta) needs both.
    """

    mode: Mode
    kind: Kind
    any_votes: bool
    both_directions: bool

    @property
    def certifies(self) -> bool:
        """Whether it may be published as a promise."""
        return self.kind is Kind.GUARANTEE and self.any_votes and self.both_directions

    def __str__(self) -> str:
        about = "any votes" if self.any_votes else "these votes only, so the number is private"
        ways = "" if self.both_directions else ", one direction only"
        return f"{self.mode}: {self.kind} for {about}{ways}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Analysis:
    """Epsilon after every query.

    Attributes:
      claim: what the numbers promise.
      delta: at which they are stated.
      epsilons: (queries,), never falling.
      orders: (queries,), the Rényi order that gave each.
    """

    claim: Claim
    delta: float
    epsilons: Floats
    orders: Floats

    def within(self, epsilon: float) -> int:
        """How many leading queries cost at most this much."""
        return int(np.searchsorted(self.epsilons, epsilon, side="right"))


def claim_of(mode: Mode, rule: VotingRule) -> Claim:
    """What a mode promises about a rule."""
    expected = mode is Mode.PAPERNOT and rule.confidence is not None
    return Claim(
        mode=mode,
        kind=Kind.EXPECTATION if expected else Kind.GUARANTEE,
        any_votes=mode in (Mode.DATA_INDEPENDENT, Mode.SHARPENED),
        both_directions=mode is not Mode.PAPERNOT,
    )


def analyse(
    rule: VotingRule,
    votes: NDArray[np.number],
    *,
    mode: Mode,
    delta: float,
    orders: Floats = ORDERS,
    conversion: Conversion = Conversion.TIGHT,
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

    Returns:
      Epsilon after each query; the numbers of `exact` and `papernot` are private.

    Raises:
      ParameterError: the votes are no votes of so many teachers.

    >>> rule = VotingRule(mechanism=Mechanism.BINARY, teachers=50, labels=20, sigma=7.0)
    >>> votes = np.zeros((30, 20))
    >>> found = analyse(rule, votes, mode=Mode.SHARPENED, delta=1e-5)
    >>> found.within(20.0), found.claim.certifies
    (20, True)
    """
    check.inside(0, 1, delta=delta)
    require_votes(rule, votes)
    epsilons, best = [], []
    for converted in _converted(rule, votes, mode, orders, _slack(orders, delta, conversion)):
        at = converted.argmin(axis=1)
        epsilons.append(np.maximum(np.take_along_axis(converted, at[:, None], 1)[:, 0], 0.0))
        best.append(orders[at])
    return Analysis(
        claim=claim_of(mode, rule),
        delta=delta,
        epsilons=np.concatenate(epsilons) if epsilons else np.zeros(0),
        orders=np.concatenate(best) if best else np.zeros(0),
    )


def query_curve(rule: VotingRule, orders: Floats, *, mode: Mode = Mode.SHARPENED) -> Floats:
    """Cost of one query whatever the votes are, shape (o,).

    Raises:
      ParameterError: the mode depends on votes.
    """
    if mode not in (Mode.DATA_INDEPENDENT, Mode.SHARPENED):
        raise ParameterError(f"{mode} needs the votes that were cast")
    total = np.zeros(orders.size)
    if mode is Mode.SHARPENED and rule.mechanism in (Mechanism.BINARY, Mechanism.TOP_M):
        return rule.moved * worst_divergence(_answers(rule), tuple(orders))
    for event in rule.events(1):
        total += orders / (2 * event.noise_multiplier**2)
    return total


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
    return max(0, int(np.max(np.floor(room / query_curve(rule, orders, mode=mode) + 1e-12))))


def epsilon_of(
    curve: Floats, orders: Floats, *, delta: float, conversion: Conversion = Conversion.TIGHT
) -> float:
    """The smallest epsilon that divergences at these orders prove."""
    return max(0.0, float(np.min(curve + _slack(orders, delta, conversion))))


def require_votes(rule: VotingRule, votes: NDArray[np.number]) -> None:
    """Requires counts that so many teachers can have given.

    Raises:
      ParameterError: they cannot.
    """
    plural = rule.mechanism in PLURALITY
    sound = votes.ndim == 2 and bool(np.all((votes >= 0) & (votes <= rule.teachers)))
    if plural:
        sound = sound and bool(np.all(votes.sum(axis=1) == rule.teachers))
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
    table = _table(rule, mode, tuple(orders))
    if table is None:
        total = slack
        for start in range(0, len(votes), _CHUNK):
            rows = np.asarray(votes[start : start + _CHUNK], dtype=np.float64)
            running = total + np.cumsum(_untabled(rule, rows, mode, orders), axis=0)
            total = running[-1]
            yield running
        return
    # Nothing but how often each margin occurs matters: count, add up, one matrix product. A
    # column of ones brings the conversion along.
    with_slack = np.vstack([table, slack])
    sides, before = len(with_slack), np.zeros(len(with_slack))
    before[-1] = 1.0
    for start in range(0, len(votes), 2 * _CHUNK):
        rows = np.asarray(votes[start : start + 2 * _CHUNK], dtype=np.int64)
        at = np.minimum(rows, rule.teachers - rows) + sides * np.arange(len(rows))[:, None]
        count = np.bincount(at.ravel(), minlength=len(rows) * sides).reshape(len(rows), sides)
        running = before + np.cumsum(count, axis=0, dtype=np.float64)
        before = running[-1]
        yield running @ with_slack


@lru_cache(maxsize=32)
def _table(rule: VotingRule, mode: Mode, orders: tuple[float, ...]) -> Floats | None:
    """Cost of an answer by the votes of its smaller side, (teachers // 2 + 1, o)."""
    if rule.mechanism is not Mechanism.BINARY or mode not in (Mode.EXACT, Mode.PAPERNOT):
        return None
    if mode is Mode.EXACT:
        more, less = move_divergences(_answers(rule), orders)
        return np.maximum(more, less)[: rule.teachers // 2 + 1]
    sides = np.arange(rule.teachers // 2 + 1, dtype=np.float64)
    return _published_answers(rule, sides, np.array(orders))


def _untabled(rule: VotingRule, votes: Floats, mode: Mode, orders: Floats) -> Floats:
    """Costs of single queries, (queries, o)."""
    known = mode in (Mode.DATA_INDEPENDENT, Mode.SHARPENED)
    whatever = query_curve(rule, orders, mode=mode if known else Mode.SHARPENED)
    if known:
        return np.broadcast_to(whatever, (len(votes), orders.size))
    if rule.mechanism in PLURALITY:
        if mode is Mode.PAPERNOT:
            return _published_winners(rule, votes, orders)
        return _exact_winners(rule, votes, orders)
    if mode is Mode.PAPERNOT:
        flat = _published_answers(rule, votes.ravel(), orders)
        cap = query_curve(rule, orders, mode=Mode.DATA_INDEPENDENT)
        return np.asarray(np.minimum(flat.reshape(*votes.shape, -1).sum(axis=1), cap))
    if rule.mechanism is Mechanism.TOP_M:
        found = _exact_truncated(rule, votes, orders)
    else:
        found = _exact_scaled(rule, votes, orders)
    return np.minimum(found, whatever)


def _exact_truncated(rule: VotingRule, votes: Floats, orders: Floats) -> Floats:
    """At most `limit` labels gain a vote and as many lose one: the dearest ones are taken."""
    more, less = move_divergences(_answers(rule), tuple(orders))
    first = max(0, rule.labels - int(rule.limit or 0))
    at = votes.astype(np.int64)
    dearest = [
        np.partition(one[at], first - (first == rule.labels), axis=1) for one in (more, less)
    ]
    return np.asarray(sum(one[:, first:].sum(axis=1) for one in dearest))


def _exact_scaled(rule: VotingRule, votes: Floats, orders: Floats) -> Floats:
    """Scaled ballots move every count by at most one vote, towards the dearer side.

    A checked answer is bounded by check and answer apart. The check is hardest to pass at
    half of the votes, so there a part of a vote can cost more than a whole one.
    """
    counts, teachers = votes.ravel(), rule.teachers
    whole = [np.clip(counts + move, 0, teachers) for move in (1.0, -1.0)]
    cost = _dearest(Answers(teachers, rule.answer_sigma).log_chances, counts, whole, orders)
    if rule.confidence is not None:
        half = np.clip(teachers / 2, counts - 1, counts + 1)
        cost += _dearest(_answers(rule).log_checks, counts, [*whole, half], orders)
    return np.asarray(cost.reshape(*votes.shape, -1).sum(axis=1))


def _dearest(
    law: Callable[[Floats], Floats], counts: Floats, moved: Sequence[Floats], orders: Floats
) -> Floats:
    """Largest divergence, in both directions, of a law at counts from the same at others."""
    here, worst = law(counts), np.zeros((counts.size, orders.size))
    for there in map(law, moved):
        for one, two in ((here, there), (there, here)):
            worst = np.maximum(worst, divergence(one, two, orders))
    return worst


def _exact_winners(rule: VotingRule, votes: Floats, orders: Floats) -> Floats:
    """Each distinct histogram once: most queries have one that was seen before."""
    ordered = np.sort(votes, axis=1)[:, ::-1]
    distinct, back = np.unique(ordered, axis=0, return_inverse=True)
    found = [
        plurality_divergence(
            one.astype(np.int64),
            classes=rule.classes,
            sigma=rule.sigma,
            orders=orders,
            confidence=rule.confidence,
        )
        for one in distinct
    ]
    return np.stack(found)[back.ravel()]


def _published_answers(rule: VotingRule, positives: Floats, orders: Floats) -> Floats:
    """Published cost of yes-or-no answers, (n, o); with a check the expected one."""
    sigma, teachers = rule.answer_sigma, rule.teachers
    missed = papernot.log_miss_of_margin(positives, teachers=teachers, sigma=sigma)
    cost = papernot.rdp_of_log_miss(missed, sigma=sigma, orders=orders)
    return _expected(rule, np.maximum(positives, teachers - positives), cost, orders)


def _published_winners(rule: VotingRule, votes: Floats, orders: Floats) -> Floats:
    """Published cost of winners, (n, o); with a check the expected one."""
    bins = np.sort(votes, axis=1)[:, ::-1][:, : rule.classes]
    missed = papernot.log_miss(bins, sigma=rule.sigma, classes=rule.classes)
    distinct, back = np.unique(missed, return_inverse=True)
    cost = papernot.rdp_of_log_miss(distinct, sigma=rule.sigma, orders=orders)[back]
    return _expected(rule, bins[:, 0], cost, orders)


def _expected(rule: VotingRule, top: Floats, cost: Floats, orders: Floats) -> Floats:
    if rule.confidence is None:
        return cost
    threshold, sigma = rule.confidence.threshold, rule.confidence.sigma
    passing = papernot.log_answered(top, threshold=threshold, sigma_threshold=sigma, rounded=True)
    checks = papernot.rdp_of_answering(
        top, threshold=threshold, sigma_threshold=sigma, orders=orders, rounded=True
    )
    return np.asarray(checks + np.exp(passing)[:, None] * cost)


def _answers(rule: VotingRule) -> Answers:
    if rule.confidence is None:
        return Answers(rule.teachers, rule.answer_sigma)
    return Answers(
        rule.teachers, rule.answer_sigma, rule.confidence.threshold, rule.confidence.sigma
    )


def _slack(orders: Floats, delta: float, conversion: Conversion) -> Floats:
    if conversion is Conversion.CLASSIC:
        return np.asarray(-math.log(delta) / (orders - 1))
    return np.asarray(np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1))
