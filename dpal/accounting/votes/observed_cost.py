"""Renyi cost of the observed votes and its local sensitivity (private).

Only the direction from the votes that were cast to their neighbours is needed (docs/voting.md):
for answers it is `exact`, for winners the published bound with its smooth sensitivity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.votes import papernot
from dpal.accounting.votes.mechanisms import PLURALITY, Mechanism
from dpal.accounting.votes.query_costs import answer_costs
from dpal.accounting.votes.smooth_sensitivity import (
    WinnerCost,
    table_local_sensitivity,
    winner_local_sensitivity,
)
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError

Floats = NDArray[np.float64]

_MOST_CLASSES = 4096  # of a plurality whose whole histogram is looked at


def require_told(rule: VotingRule) -> None:
    """Requires a rule whose cost on given votes can be told.

    Raises:
      ParameterError: it cannot. Nothing was released.
    """
    plural = rule.mechanism in PLURALITY
    fine = rule.mechanism is Mechanism.BINARY or (
        plural and rule.confidence is None and rule.classes <= _MOST_CLASSES
    )
    if not fine:
        raise ParameterError.before_release(
            f"what {rule.mechanism} voting like this costs on given votes is not told yet; use "
            f"binary, or a plurality of at most {_MOST_CLASSES} classes without a threshold, or "
            "leave the agreement out"
        )


def told_cost(rule: VotingRule, votes: Floats, order: float) -> tuple[float, Floats]:
    """Cost of all queries together, and its local sensitivity by distance. Private.

    One ballot may move every query, so both add up over queries.

    Args:
      rule: one that `require_told` takes.
      votes: as `dpal.accounting.votes.cost_analysis.analyse` takes them.
      order: of the Rényi divergence.

    Returns:
      Nats, and (teachers + 1,) nats.

    Raises:
      ParameterError: smooth sensitivity is not proven at this order and noise.
    """
    require_told(rule)
    if rule.mechanism is Mechanism.BINARY:
        table = answer_costs(rule, order)
        often = np.bincount(votes.astype(np.int64).ravel(), minlength=rule.teachers + 1)
        return float(often @ table), np.asarray(often @ table_local_sensitivity(table))
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


def typical_votes(rule: VotingRule, agreement: float) -> Floats:
    """Votes of one query on which so many teachers agree, (1, labels) or (1, 2)."""
    agreeing = round(agreement * rule.teachers)
    if rule.mechanism is Mechanism.BINARY:
        return np.full((1, rule.labels), float(rule.teachers - agreeing))
    return np.array([[float(agreeing), float(rule.teachers - agreeing)]])
