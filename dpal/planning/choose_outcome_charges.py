"""Choosing charges by outcome, without the votes: for a guess of how many queries are answered."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpal import check
from dpal.accounting.rdp import ORDERS
from dpal.accounting.votes.cost_analysis import epsilon_of
from dpal.accounting.votes.outcome_charges import (
    OutcomeCharges,
    charge_of_an_answer,
    require_charged_by_outcome,
)
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.voting_plan import VotingSpec

_ORDERS = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0)
# Charges of an unanswered query that are tried, as shares of what either outcome costs at most.
_SHARES = np.geomspace(0.005, 1.0, 40)
_SAFE = 1 - 1e-9  # of the promise: sums of floats


def charged_by_outcome(spec: VotingSpec, answered_share: float) -> VotingSpec:
    """The account with charges that pay for most queries if the guess is right.

    Args:
      spec: with its sigma, and a threshold.
      answered_share: of the queries that are expected to be answered; public.

    Raises:
      PlanRejected: not even one query is paid for.
      ParameterError: the rule is charged otherwise.
    """
    check.inside(0, 1, **{"voting.answered_share": answered_share})
    rule = spec.rule
    require_charged_by_outcome(rule)
    if spec.before.declared is not None or spec.gate is not None:
        raise ParameterError.before_release(
            "queries are charged by their outcome after releases that are known, and without a gate"
        )
    events = [charge.event for release in spec.before.releases for charge in release.charges]
    left = spec.target.delta - sum(event.delta for event in events)
    best: tuple[float, OutcomeCharges] | None = None
    for order in _ORDERS:
        if not left > 0:
            break
        at = int(np.argmin(np.abs(ORDERS - order)))
        earlier = sum(float(event.renyi(spec.target.adjacency)[at]) for event in events)
        slack = epsilon_of(np.zeros(1), np.array([order]), delta=left)
        limit = (spec.target.epsilon - slack - earlier) / len(spec.blocks) * _SAFE
        if not limit > 0:
            continue
        alike = _charged_alike(spec, order)
        for share in _SHARES:
            none = float(f"{share * alike:.6g}")
            answer = charge_of_an_answer(rule, order, unanswered=none)
            mean = answered_share * answer + (1 - answered_share) * none
            if not limit / mean > (best[0] if best else 0.0) or answer > limit:
                continue
            # Rounded up: the same plan on every machine.
            answer = float(f"{answer * 1.0001:.5g}")
            charges = OutcomeCharges(order=order, answered=answer, unanswered=none, limit=limit)
            best = limit / mean, charges
    if best is None:
        raise PlanRejected(
            f"no query with sigma {rule.sigma:g} fits epsilon {spec.target.epsilon:g}; raise sigma "
            "or epsilon"
        )
    return replace(spec, charges=best[1])


def _charged_alike(spec: VotingSpec, order: float) -> float:
    """The least charge that both outcomes may have: found between bounds, above it."""
    low, high = 0.0, order * 4
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        enough = charge_of_an_answer(spec.rule, order, unanswered=middle) <= middle * (1 + 1e-6)
        low, high = (low, middle) if enough else (middle, high)
        if high < 1e-12:
            break
    return high if math.isfinite(high) else order
