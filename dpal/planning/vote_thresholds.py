"""Threshold, its noise and sigma together: a small sigma that fits, for answers that are wanted.

An answer that is given only where teachers agree tells little about one ballot, so that much less
noise is safe for any votes. What is wanted is said by a public share of teachers: queries on which
so many of them agree shall be answered.

Nothing here looks at votes, and whatever is found is certified by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.prior_spend import total_epsilon
from dpal.accounting.rdp import ORDERS
from dpal.accounting.votes.cost_analysis import query_curve
from dpal.accounting.votes.mechanisms import Confidence
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.voting_plan import VotingPlan, VotingSpec, total_of

SURE = 0.9  # chance with which a query is answered on which as many agree as was asked for
# Standard deviations of the check's noise that are tried, as shares of the teachers.
_CHECKS = np.array([0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7])
_LEAST, _MOST = 1 / 200, 2.0  # sigma as a share of the teachers: less noise turns no answer
_STEP = 1.12  # of the sigmas that are tried
_TRIED_ORDERS = np.array([1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 13, 17, 23, 32])


def choose_threshold(spec: VotingSpec, answer_from: float) -> VotingRule:
    """A rule with little noise that answers what is wanted: the best of those that are tried.

    Args:
      spec: with any sigma and without a threshold.
      answer_from: share of the teachers; where so many agree a query is answered with chance
        `SURE`. Public.

    Returns:
      A rule by which all blocks keep the promise, whatever the votes are.

    Raises:
      ParameterError: check and answer are not one answer in this kind of vote.
      PlanRejected: no noise is enough.
    """
    check.within(0, 1, **{"voting.answer_from": answer_from})
    rule = spec.rule
    if spec.gate is not None or not (rule.tells_sides or rule.tells_winners):
        raise ParameterError.before_release(
            f"voting.answer_from chooses a threshold where check and answer are charged as one; "
            f"{rule.mechanism} voting like this adds both up: give voting.sigma, or leave "
            "voting.answer_from out"
        )
    best: tuple[float, float, VotingRule] | None = None
    for candidate in _candidates(spec, answer_from):
        # Of equal sigmas the one that answers more of what is less agreed upon.
        rank = (candidate.sigma, -answer_chance(candidate, answer_from - 0.1))
        if best is None or rank < best[:2]:
            best = (*rank, candidate)
    if best is None:
        raise PlanRejected(
            f"no noise makes {sum(spec.blocks):,} queries fit epsilon {spec.target.epsilon:g}; ask "
            "fewer"
        )
    return _certified(spec, best[2])


def answer_chance(rule: VotingRule, share: float) -> float:
    """Chance that a query is answered on which this share of the teachers agrees."""
    if rule.confidence is None:
        return 1.0
    above = (share * rule.teachers - rule.confidence.threshold) / rule.confidence.sigma
    return float(scipy.special.ndtr(above))


def _candidates(spec: VotingSpec, answer_from: float) -> Iterator[VotingRule]:
    """For every noise of the check the least sigma that fits, roughly."""
    teachers = spec.rule.teachers
    sigmas = np.geomspace(
        _LEAST * teachers,
        _MOST * teachers,
        math.ceil(math.log(_MOST / _LEAST) / math.log(_STEP)),
    )
    for share in _CHECKS:
        threshold = answer_from * teachers - scipy.special.ndtri(SURE) * share * teachers
        if threshold <= 0:
            continue
        confidence = Confidence(threshold=_rounded(threshold), sigma=_rounded(share * teachers))
        rules = [replace(spec.rule, sigma=_rounded(s), confidence=confidence) for s in sigmas]
        low, high = -1, len(rules)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _fits(spec, rules[middle]) else (middle, high)
        if high < len(rules):
            yield rules[high]


def _fits(spec: VotingSpec, rule: VotingRule) -> bool:
    """Whether all queries keep the promise, by few orders; what was spent before counts too."""
    queries, delta = sum(spec.blocks), spec.target.delta
    orders = _TRIED_ORDERS
    own = queries * _cost_of_one(rule)
    events = [charge.event for release in spec.before.releases for charge in release.charges]
    at = np.searchsorted(ORDERS, orders - 1e-9)
    earlier = sum(
        (event.renyi(spec.target.adjacency)[at] for event in events), np.zeros(orders.size)
    )
    slack = np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return bool((own + earlier + slack).min() <= spec.target.epsilon)


@lru_cache(maxsize=4096)
def _cost_of_one(rule: VotingRule) -> NDArray[np.float64]:
    """Costs of one query at the orders that are tried, kept: sweeps try the same rules again."""
    return query_curve(rule, _TRIED_ORDERS)


def _certified(spec: VotingSpec, rule: VotingRule) -> VotingRule:
    """The rule with a sigma that truly fits: a little more where few orders said too little.

    A certificate also says what the noisy counts would cost, which has no end with hardly any
    noise: then it is more, too.
    """
    for step in (0.9, 0.93, 0.96, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0):
        tried = replace(rule, sigma=_rounded(rule.sigma * step))
        account = replace(spec, rule=tried)
        try:
            if total_of(account) <= spec.target.epsilon:
                total_epsilon(spec.before, list(VotingPlan(account).releases()), spec.target)
                return tried
        except ParameterError:
            continue
    raise PlanRejected(
        f"{sum(spec.blocks):,} queries do not fit epsilon {spec.target.epsilon:g}; ask fewer"
    )


def _rounded(value: float) -> float:
    """Four digits: the same plan on every machine."""
    return float(f"{value:.4g}")
