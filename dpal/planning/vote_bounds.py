"""Choosing, without the votes, how their cost is told and up to which cost they leave.

A public guess of how far teachers agree stands for the votes: a wrong guess costs answers or
budget, never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy

from dpal import check
from dpal.accounting.votes.cost_analysis import epsilon_of
from dpal.accounting.votes.cost_bound import CostBound
from dpal.accounting.votes.observed_cost import told_cost, typical_votes
from dpal.accounting.votes.smooth_sensitivity import sanitizing_cost, smooth
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError, PlanRejected
from dpal.privacy import PrivacyTarget

_FAILURES = 0.05  # share of delta for bounds that fail
_ORDERS = [1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32]
_BETAS = [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4]  # times the order
_NOISES = [0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.6, 8, 11, 16, 23, 32]
_SURE = 3.0  # standard deviations of room that a guess should leave


@dataclass(frozen=True, kw_only=True)
class ChosenBound:
    """A bound, and the room that it leaves on votes like the guess.

    Attributes:
      bound: chosen.
      room: limit less what is expected to be told, at its order; below 0 answers would
        probably not leave.
    """

    bound: CostBound
    room: float


def choose_bound(
    rule: VotingRule, queries: int, target: PrivacyTarget, *, agreement: float, blocks: int = 1
) -> ChosenBound:
    """The bound that leaves most room on votes like a public guess.

    Args:
      rule: one whose cost can be told.
      queries: of a block.
      target: of the account; each block gets an equal share.
      agreement: share of teachers on the majority's side of a typical answer; public.
      blocks: how many there are.

    Raises:
      PlanRejected: not even the price of a bound fits.
    """
    check.inside(0.5, 1, agreement=agreement)
    choices = list(_choices(rule, queries, target, agreement, blocks))
    if not choices:
        raise PlanRejected(
            f"epsilon {target.epsilon:g} does not cover telling what votes cost; raise it, or "
            "leave the bound out"
        )
    return max(choices, key=lambda choice: choice.room)


def sigma_for(
    rule: VotingRule, queries: int, target: PrivacyTarget, *, agreement: float, blocks: int = 1
) -> float:
    """The least noise, within a hundredth, with which votes like the guess leave.

    Raises:
      PlanRejected: none is enough.
    """

    def leaves(sigma: float) -> bool:
        tried = replace(rule, sigma=sigma)
        try:
            chosen = choose_bound(tried, queries, target, agreement=agreement, blocks=blocks)
        except PlanRejected:  # nothing is proven for so little noise
            return False
        return chosen.room > 0

    low, high = rule.teachers / 200, rule.teachers / 100
    while not leaves(high):
        low, high = high, 1.5 * high
        if high > 1e4 * rule.teachers:
            raise PlanRejected(
                f"no noise lets {queries:,} queries leave within epsilon {target.epsilon:g}; ask "
                "fewer"
            )
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if leaves(middle) else (middle, high)
    return high


def _choices(
    rule: VotingRule, queries: int, target: PrivacyTarget, agreement: float, blocks: int
) -> Iterator[ChosenBound]:
    failure = _FAILURES * target.delta / blocks
    margin = float(-scipy.special.ndtri(failure))
    left = target.delta - blocks * failure
    typical = typical_votes(rule, agreement)
    for order in _ORDERS:
        slack = epsilon_of(np.zeros(1), np.array([float(order)]), delta=left)
        share = (target.epsilon - slack) / blocks
        if share <= 0:
            continue
        try:
            cost, changes = told_cost(rule, typical, float(order))
        except ParameterError:
            continue  # not proven at this order
        expected, local = queries * cost, queries * changes
        for step in _BETAS:
            beta = step / order
            sensitivity = smooth(local, beta=beta)
            for noise in _NOISES:
                widening = 1 - margin * noise * math.expm1(beta)
                if widening <= 0:
                    break
                try:
                    price = sanitizing_cost(order, beta=beta, noise=noise)
                except ParameterError:
                    break
                limit = share - price
                if limit <= 0:
                    continue
                told = expected + (margin + _SURE) * noise / widening * sensitivity
                bound = CostBound(
                    order=float(order), beta=beta, noise=float(noise), margin=margin, limit=limit
                )
                yield ChosenBound(bound=bound, room=limit - told)
