"""What single queries cost, by each way to count.

Source: docs/voting.md; the published bound in `dpal.accounting.votes.papernot`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.votes import papernot
from dpal.accounting.votes.cost_kinds import Mode
from dpal.accounting.votes.majority import Answers, divergence, move_divergences, worst_divergence
from dpal.accounting.votes.mechanisms import PLURALITY, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.accounting.votes.winner_costs import plurality_divergences
from dpal.accounting.votes.worst_winner import Winners, worst_winner
from dpal.errors import ParameterError

Floats = NDArray[np.float64]


def query_curve(rule: VotingRule, orders: Floats, *, mode: Mode = Mode.SHARPENED) -> Floats:
    """Cost of one query whatever the votes are, shape (o,).

    Raises:
      ParameterError: the mode depends on votes.
    """
    if mode not in (Mode.DATA_INDEPENDENT, Mode.SHARPENED):
        raise ParameterError(f"{mode} needs the votes that were cast")
    total = np.zeros(orders.size)
    if mode is Mode.SHARPENED and rule.tells_sides:
        return rule.squared_l2_sensitivity * worst_divergence(_answers(rule), tuple(orders))
    if mode is Mode.SHARPENED and rule.tells_winners:
        return worst_winner(_winners(rule), tuple(orders))
    for event in rule.events(1):
        total += orders / (2 * event.noise_multiplier**2)
    return total


def answer_costs(rule: VotingRule, order: float) -> Floats:
    """(teachers + 1,) exact cost of a yes-or-no answer by its votes for yes, at one order."""
    more, less = move_divergences(_answers(rule), (order,))
    return np.asarray(np.maximum(more, less)[:, 0])


@lru_cache(maxsize=32)
def table_of(rule: VotingRule, mode: Mode, orders: tuple[float, ...]) -> Floats | None:
    """Cost of an answer by the votes of its smaller side, (teachers // 2 + 1, o)."""
    told = rule.mechanism is Mechanism.BINARY and not rule.counts
    if not told or mode not in (Mode.EXACT, Mode.PAPERNOT):
        return None
    if mode is Mode.EXACT:
        more, less = move_divergences(_answers(rule), orders)
        return np.maximum(more, less)[: rule.teachers // 2 + 1]
    sides = np.arange(rule.teachers // 2 + 1, dtype=np.float64)
    return _published_answers(rule, sides, np.array(orders))


def costs_of(rule: VotingRule, votes: Floats, mode: Mode, orders: Floats) -> Floats:
    """Costs of single queries, (queries, o)."""
    ignores_votes = mode in (Mode.DATA_INDEPENDENT, Mode.SHARPENED)
    whatever = query_curve(rule, orders, mode=mode if ignores_votes else Mode.SHARPENED)
    if ignores_votes or rule.counts:  # what counts tell depends on no vote
        return np.asarray(np.broadcast_to(whatever, (len(votes), orders.size)))
    if rule.mechanism in PLURALITY:
        if mode is Mode.PAPERNOT:
            return _published_winners(rule, votes, orders)
        return _exact_winners(rule, votes, orders)
    if mode is Mode.PAPERNOT:
        flat = _published_answers(rule, votes.ravel(), orders)
        cap = query_curve(rule, orders, mode=Mode.DATA_INDEPENDENT)
        return np.asarray(np.minimum(flat.reshape(*votes.shape, -1).sum(axis=1), cap))
    if rule.mechanism is Mechanism.TOP_M:
        costs = _exact_truncated(rule, votes, orders)
    else:
        costs = _exact_scaled(rule, votes, orders)
    return np.minimum(costs, whatever)


def _exact_truncated(rule: VotingRule, votes: Floats, orders: Floats) -> Floats:
    """At most `limit` labels gain a vote and as many lose one: the dearest ones are taken."""
    more, less = move_divergences(_answers(rule), tuple(orders))
    first = max(0, rule.labels - int(rule.limit or 0))
    counts = votes.astype(np.int64)
    dearest = [
        np.partition(table[counts], first - (first == rule.labels), axis=1)
        for table in (more, less)
    ]
    total = np.asarray(sum(costs[:, first:].sum(axis=1) for costs in dearest))
    # A label cannot gain a vote and lose one at once.
    return np.asarray(np.minimum(total, np.maximum(more, less)[counts].sum(axis=1)))


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
        for first, second in ((here, there), (there, here)):
            worst = np.maximum(worst, divergence(first, second, orders))
    return worst


def _exact_winners(rule: VotingRule, votes: Floats, orders: Floats) -> Floats:
    """Each distinct histogram once: most queries have one that was seen before."""
    ordered = np.sort(votes, axis=1)[:, ::-1]
    distinct, back = np.unique(ordered, axis=0, return_inverse=True)
    costs = plurality_divergences(
        distinct.astype(np.int64),
        classes=rule.classes,
        sigma=rule.sigma,
        orders=orders,
        confidence=rule.confidence,
    )
    return costs[back.ravel()]


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


def _winners(rule: VotingRule) -> Winners:
    check = rule.confidence
    return Winners(
        rule.teachers,
        rule.classes,
        rule.sigma,
        None if check is None else check.threshold,
        None if check is None else check.sigma,
    )


def _answers(rule: VotingRule) -> Answers:
    if rule.confidence is None:
        return Answers(rule.teachers, rule.answer_sigma)
    return Answers(
        rule.teachers, rule.answer_sigma, rule.confidence.threshold, rule.confidence.sigma
    )
