"""Choosing, without the votes, how their cost is told and up to which cost they leave.

A public guess of how far teachers agree stands for the votes: a wrong guess costs noise, never
privacy. Queries differ, and those on which teachers are nearly divided decide what all of them
cost: so the guess is a list of shares, each for as many queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.prior_spend import PriorSpend
from dpal.accounting.rdp import ORDERS
from dpal.accounting.safe_search import smallest_safe
from dpal.accounting.votes.cost_analysis import epsilon_of
from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.observed_cost import (
    cost_with_noise,
    is_told_by_lead,
    told_cost,
    typical_votes,
)
from dpal.accounting.votes.smooth_sensitivity import sanitizing_cost, smooth
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError, PlanRejected
from dpal.privacy import PrivacyTarget

SURE = 0.99  # chance with which votes like the guess shall leave with little noise
LESS_AGREEMENT = (0.0, 0.02, 0.05)  # of the teachers: how far a guess may be off where it is shown
MOST_SHARES = 1_000  # of a guess

Floats = NDArray[np.float64]

_FAILURES = 0.05  # share of delta for bounds that fail
_ORDERS = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0)
_NEARBY = 2  # of these, on either side
_BETAS = [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4]  # times the order
_NOISES = [0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.6, 8, 11, 16, 23, 32]
_SPREAD = 20  # shares that one number becomes
_SHARE_OF_TEACHERS = 2.0  # sigma of answers that are no answers any more


@dataclass(frozen=True, kw_only=True)
class ChosenBound:
    """A bound, and the chance that votes like the guess leave within it.

    Attributes:
      bound: chosen.
      chance: that what is told is within the limit, if votes are as guessed.
    """

    bound: CostBound
    chance: float


def choose_bound(
    rule: VotingRule,
    queries: int,
    target: PrivacyTarget,
    *,
    shares: Sequence[float],
    blocks: int = 1,
    before: PriorSpend | None = None,
) -> ChosenBound:
    """The bound within which votes like a public guess leave with the highest chance.

    Args:
      rule: one whose cost can be told.
      queries: of a block.
      target: of the account; each block gets an equal share.
      shares: of the teachers on the side of the majority, each for as many queries; public.
      blocks: how many there are.
      before: what was released about the same records, by Rényi divergences.

    Returns:
      With a fallback: noise with which answers leave where the bound is above the limit.

    Raises:
      PlanRejected: not even the price of a bound fits.
    """
    require_shares(shares)
    best: tuple[float, CostBound] | None = None
    for candidate in _choices(rule, queries, target, tuple(shares), blocks, before or PriorSpend()):
        if best is None or candidate[0] > best[0]:
            best = candidate
    if best is None:
        raise PlanRejected(
            f"epsilon {target.epsilon:g} does not cover telling what votes cost; raise it, or "
            "leave the bound out"
        )
    bound = replace(best[1], fallback_sigma=_fallback_sigma(rule, queries, best[1]))
    return ChosenBound(bound=bound, chance=float(scipy.special.ndtr(best[0])))


def sigma_for(
    rule: VotingRule,
    queries: int,
    target: PrivacyTarget,
    *,
    shares: Sequence[float],
    blocks: int = 1,
    before: PriorSpend | None = None,
    most: float | None = None,
) -> float:
    """The least noise, within a hundredth, with which votes like the guess leave: chance `SURE`.

    Args:
      rule: any sigma.
      queries: of a block.
      target: of the account.
      shares: the guess, as in `choose_bound`.
      blocks: how many there are.
      before: what was released about the same records.
      most: noise that is enough without a bound; None for no end but that of any use.

    Raises:
      PlanRejected: none is enough.
    """
    require_shares(shares)
    spent = before or PriorSpend()

    needed = float(scipy.special.ndtri(SURE))
    orders: Sequence[float] = _ORDERS

    def leaves(sigma: float) -> bool:
        nonlocal orders
        tried = replace(rule, sigma=sigma)
        choices = _choices(tried, queries, target, tuple(shares), blocks, spent, orders)
        found = next((bound for room, bound in choices if room >= needed), None)
        if found is not None:
            # Less noise is decided at orders nearby: the others need not be looked at again.
            at = _ORDERS.index(found.order)
            orders = _ORDERS[max(0, at - _NEARBY) : at + _NEARBY + 1]
        return found is not None

    low, high = rule.teachers / 200, most or _SHARE_OF_TEACHERS * rule.teachers
    if not leaves(high):
        raise PlanRejected(
            f"no noise up to {high:.4g} lets {queries:,} queries leave within epsilon "
            f"{target.epsilon:g}; ask fewer"
        )
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if leaves(middle) else (middle, high)
    return high


def shares_of(agreement: float | Sequence[float]) -> tuple[float, ...]:
    """The guess that settings say: a list of shares as it is, one number as their mean.

    Queries of one mean agreement differ, and a few of them are nearly ties. So a number a becomes
    shares from one half to 1 with that mean: 1 - u^k / 2 at evenly spaced u, k = 1 / (2 - 2a) - 1.

    >>> [round(share, 2) for share in shares_of(0.9)][::6]
    [1.0, 0.99, 0.92, 0.64]
    """
    if not isinstance(agreement, int | float):
        shares = tuple(map(float, agreement))
        require_shares(shares)
        return shares
    check.inside(0.5, 1, **{"voting.agreement": agreement})
    power = 0.5 / (1 - agreement) - 1
    return tuple(round(1 - ((place + 0.5) / _SPREAD) ** power / 2, 4) for place in range(_SPREAD))


def leave_chance(
    rule: VotingRule, bound: CostBound, queries: int, shares: Sequence[float]
) -> float:
    """Chance that answers leave with little noise, if teachers agree as far as the shares say."""
    told, scale = _told(rule, bound, queries, tuple(shares))
    return (
        float(scipy.special.ndtr((bound.limit - told) / scale))
        if scale
        else float(told <= bound.limit)
    )


def less_agreed(shares: Sequence[float], by: float) -> tuple[float, ...]:
    """The same guess with fewer teachers on the side of the majority, not below half of them."""
    return tuple(max(0.5, share - by) for share in shares)


def require_shares(shares: Sequence[float]) -> None:
    """Requires a guess: some shares of the teachers, from one half on.

    Raises:
      ParameterError: it is none.
    """
    check.within(1, MOST_SHARES, **{"shares of voting.agreement": len(shares)})
    for share in shares:
        check.within(0.5, 1, **{"voting.agreement": share})


def _fallback_sigma(rule: VotingRule, queries: int, bound: CostBound) -> float | None:
    """The least noise whose answers cost no more than the limit; None where none does."""
    try:
        sigma = smallest_safe(
            lambda tried: cost_with_noise(rule, queries, bound.order, tried),
            bound.limit,
            low=max(rule.sigma / 2, 1e-3),
        )
    except ParameterError:  # the check of confidence alone costs more
        return None
    # Rounded up: the same plan on every machine.
    rounded = float(f"{sigma * 1.0005:.4g}")
    safe = cost_with_noise(rule, queries, bound.order, rounded) <= bound.limit
    return rounded if safe and rounded > rule.sigma else None


def _told(
    rule: VotingRule, bound: CostBound, queries: int, shares: tuple[float, ...]
) -> tuple[float, float]:
    """Mean and standard deviation of what is told of votes like the guess."""
    cost, local = _typical_cost(rule, shares, bound.order, bound.by_lead)
    scale = _scale(bound) * queries * smooth(local, beta=bound.beta)
    return queries * cost + bound.margin * scale, scale


def _scale(bound: CostBound) -> float:
    """Noise over the smooth sensitivity (`dpal.mechanisms.sanitized_cost`)."""
    return bound.noise / (1 - bound.margin * bound.noise * math.expm1(bound.beta))


@lru_cache(maxsize=512)
def _typical_cost(
    rule: VotingRule, shares: tuple[float, ...], order: float, by_lead: bool
) -> tuple[float, Floats]:
    """Of one query, on average over the shares."""
    cost, local = told_cost(rule, typical_votes(rule, shares), order, by_lead=by_lead)
    return cost / len(shares), local / len(shares)


def _choices(
    rule: VotingRule,
    queries: int,
    target: PrivacyTarget,
    shares: tuple[float, ...],
    blocks: int,
    before: PriorSpend,
    orders: Sequence[float] = _ORDERS,
) -> Iterator[tuple[float, CostBound]]:
    """Bounds, and by how many standard deviations votes like the guess are within them."""
    events = [charge.event for release in before.releases for charge in release.charges]
    failure = _FAILURES * target.delta / blocks
    margin = float(-scipy.special.ndtri(failure))
    left = target.delta - blocks * failure - sum(event.delta for event in events)
    if before.declared is not None or not left > 0:
        return
    by_lead = is_told_by_lead(rule)
    for order in orders:
        slack = epsilon_of(np.zeros(1), np.array([float(order)]), delta=left)
        at = int(np.argmin(np.abs(ORDERS - order)))
        earlier = sum(float(event.renyi(target.adjacency)[at]) for event in events)
        share = (target.epsilon - slack - earlier) / blocks
        if not share > 0:
            continue
        try:
            cost, changes = _typical_cost(rule, shares, float(order), by_lead)
        except ParameterError:
            continue  # not proven at this order
        for step in _BETAS:
            beta = step / order
            sensitivity = queries * smooth(changes, beta=beta)
            for noise in _NOISES:
                if 1 - margin * noise * math.expm1(beta) <= 0:
                    break
                try:
                    price = sanitizing_cost(order, beta=beta, noise=noise)
                except ParameterError:
                    break
                limit = share - price
                if limit <= 0:
                    continue
                bound = CostBound(
                    order=float(order),
                    beta=beta,
                    noise=float(noise),
                    margin=margin,
                    limit=limit,
                    by_lead=by_lead,
                )
                room = limit - queries * cost - margin * _scale(bound) * sensitivity
                scale = _scale(bound) * sensitivity
                yield (room / scale if scale else math.copysign(math.inf, room)), bound
