"""Renyi cost of the observed votes and its local sensitivity (private).

Only the direction from the votes that were cast to their neighbours is needed (docs/voting.md):
for answers it is `exact`, for winners a bound by how far they lead (in accounts of earlier versions
the published bound with its smooth sensitivity).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.votes import papernot
from dpal.accounting.votes.lead_costs import lead_costs
from dpal.accounting.votes.mechanisms import PLURALITY, Mechanism
from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.query_costs import answer_costs, query_curve
from dpal.accounting.votes.smooth_sensitivity import (
    WinnerCost,
    summed_local_sensitivity,
    winner_local_sensitivity,
)
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.accounting.votes.worst_winner import MOST_PLURALITY_TEACHERS
from dpal.errors import ParameterError

Floats = NDArray[np.float64]

_MOST_CLASSES = 4096  # of a plurality whose whole histogram is looked at


def require_told(rule: VotingRule) -> None:
    """Requires a rule whose cost on given votes can be told.

    Raises:
      ParameterError: it cannot. Nothing was released.
    """
    plural = rule.mechanism in PLURALITY and rule.confidence is None
    if rule.mechanism is not Mechanism.BINARY and not (
        plural and (is_told_by_lead(rule) or rule.classes <= _MOST_CLASSES)
    ):
        raise ParameterError.before_release(
            f"what {rule.mechanism} voting like this costs on given votes is not told yet; use "
            f"binary, or a plurality without a threshold of at most {MOST_PLURALITY_TEACHERS:,} "
            f"teachers or {_MOST_CLASSES:,} classes, or leave the agreement out"
        )


def is_told_by_lead(rule: VotingRule) -> bool:
    """Whether new accounts tell what its winners cost by how far they lead."""
    return rule.mechanism in PLURALITY and rule.teachers <= MOST_PLURALITY_TEACHERS


def told_cost(
    rule: VotingRule, votes: Floats, order: float, *, by_lead: bool
) -> tuple[float, Floats]:
    """Cost of all queries together, and its local sensitivity by distance. Private.

    One ballot may move every query, so both add up over queries.

    Args:
      rule: one that `require_told` takes.
      votes: as `dpal.accounting.votes.cost_analysis.analyse` takes them.
      order: of the Rényi divergence.
      by_lead: as in `CostBound`; it makes no difference to answers of yes or no.

    Returns:
      Nats, and (teachers + 1,) nats.

    Raises:
      ParameterError: smooth sensitivity is not proven at this order and noise.
    """
    require_told(rule)
    if rule.mechanism is Mechanism.BINARY:
        table = answer_costs(rule, order)
        often = np.bincount(votes.astype(np.int64).ravel(), minlength=rule.teachers + 1)
        return float(often @ table), summed_local_sensitivity(table, often)
    if by_lead:
        costs = lead_costs(
            teachers=rule.teachers, classes=rule.classes, sigma=rule.sigma, order=order
        )
        often = np.bincount(leads_of(votes), minlength=rule.teachers + 1)
        return float(often @ costs), summed_local_sensitivity(costs, often, moved=2)
    return _by_the_published_bound(rule, votes, order)


def cost_with_noise(rule: VotingRule, queries: int, order: float, sigma: float) -> float:
    """What so many queries cost with another sigma, at one order and whatever the votes are."""
    noisier = replace(rule, sigma=sigma).charged(by_answers=True)
    return queries * float(query_curve(noisier, np.array([order]))[0])


def require_fallback(rule: VotingRule, queries: int, bound: CostBound) -> None:
    """Requires that answers above the limit of a bound cost no more than it, whatever the votes.

    Raises:
      ParameterError: they cost more.
    """
    if bound.fallback_sigma is None:
        return
    cost = cost_with_noise(rule, queries, bound.order, bound.fallback_sigma)
    if not cost <= bound.limit:
        raise ParameterError.before_release(
            f"answers with noise {bound.fallback_sigma:g} cost {cost:.4g} at order "
            f"{bound.order:g}, and the limit is {bound.limit:.4g}; raise fallback_sigma"
        )


def leads_of(votes: Floats) -> NDArray[np.int64]:
    """Votes between the largest count and the next one, (queries,)."""
    if votes.shape[1] == 1:
        return votes[:, 0].astype(np.int64)
    ordered = np.partition(votes, -2, axis=1)
    return np.asarray((ordered[:, -1] - ordered[:, -2]).astype(np.int64))


def _by_the_published_bound(rule: VotingRule, votes: Floats, order: float) -> tuple[float, Floats]:
    cost = WinnerCost(sigma=rule.sigma, order=order, classes=rule.classes)
    ordered = np.sort(votes, axis=1)[:, ::-1]
    histograms, often = np.unique(ordered, axis=0, return_counts=True)
    total, local = 0.0, np.zeros(rule.teachers + 1)
    for histogram, count in zip(histograms, often, strict=True):
        whole = np.zeros(rule.classes)
        cast = histogram[histogram > 0]
        whole[: cast.size] = cast
        missed = papernot.log_miss(whole[None], sigma=rule.sigma)
        total += count * float(cost.at(missed)[0])
        local += count * winner_local_sensitivity(whole, cost=cost)
    return total, local


def typical_votes(rule: VotingRule, shares: Sequence[float]) -> Floats:
    """Votes of queries on which such shares of the teachers agree, (shares, labels) or (shares, 2).

    Of a plurality the others name one class: what counts is the lead.
    """
    agreeing = np.rint(np.asarray(shares, dtype=np.float64) * rule.teachers)
    agreeing = np.maximum(agreeing, rule.teachers - agreeing)
    if rule.mechanism is Mechanism.BINARY:
        return np.repeat((rule.teachers - agreeing)[:, None], rule.labels, axis=1)
    return np.stack([agreeing, rule.teachers - agreeing], axis=1)
