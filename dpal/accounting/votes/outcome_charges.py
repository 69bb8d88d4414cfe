"""Charges by what was released: an unanswered query costs less than an answered one.

With a threshold a query is answered, or not. Let g and g' be the chances of an answer in two
neighbouring worlds, and M the moment of the answer given that there is one. At Rényi order a, a
query may be charged b where it is answered and c where it is not if for every pair of worlds

    g^a g'^(1-a) M e^(-(a-1) b) + (1-g)^a (1-g')^(1-a) e^(-(a-1) c) <= 1.

Then the product of (P / Q)^(a-1) over all queries, each divided by e^(a-1) times its charge, has a
mean of at most 1 however queries were chosen; and if asking stops before charges exceed a limit,
all that is released has a divergence of at most that limit. It is a filter: only the limit is held.

Source: own derivation after Feldman & Zrnic (2021); docs/voting.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.events import CostBoundedVotes
from dpal.accounting.votes.majority import Answers
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.accounting.votes.worst_winner import FAR, Winners, moves_by_leader
from dpal.errors import ParameterError

Floats = NDArray[np.float64]

_ROUNDED = 1e-9  # relative, of a charge; and what the condition may be off by


@dataclass(frozen=True, kw_only=True)
class OutcomeCharges:
    """What an answer and what none is charged, and up to which sum is asked.

    Attributes:
      order: Rényi order of all three, chosen without the votes.
      answered: divergence of an answer.
      unanswered: divergence of none.
      limit: of the sum in a block.
    """

    order: float
    answered: float
    unanswered: float
    limit: float

    def __post_init__(self) -> None:
        check.at_least(1.1, order=self.order)
        check.positive(unanswered=self.unanswered, limit=self.limit)
        check.at_least(self.unanswered, answered=self.answered)

    @property
    def event(self) -> CostBoundedVotes:
        """What a block is charged as: all that may be spent."""
        return CostBoundedVotes(order=self.order, divergence=self.limit, failure=0.0)

    def spent(self, answered: int, unanswered: int) -> float:
        """What so many answers and so many unanswered queries cost together, rounded up."""
        total = answered * self.answered + unanswered * self.unanswered
        return total * (1 + 1e-12)


def require_charged_by_outcome(rule: VotingRule) -> None:
    """Requires a rule whose answers and unanswered queries can be charged apart.

    Raises:
      ParameterError: it has no threshold, or is charged by its counts.
    """
    told = rule.mechanism is Mechanism.BINARY or (
        rule.mechanism is not Mechanism.TOP_M and (rule.tells_sides or rule.tells_winners)
    )
    if rule.confidence is None or not told:
        raise ParameterError.before_release(
            "an unanswered query is charged less where a threshold decides whether it is answered, "
            "by binary votes and pluralities: give threshold and threshold_sigma, or leave "
            "answered_share out"
        )


def charge_of_an_answer(rule: VotingRule, order: float, *, unanswered: float) -> float:
    """The least charge of an answer beside a given one of an unanswered query.

    Args:
      rule: one that `require_charged_by_outcome` takes.
      order: of both.
      unanswered: charge of a query without an answer, above 0.

    Returns:
      A divergence; infinite where an unanswered query alone may cost more than it is charged.
    """
    given, none = _moments(rule, order)
    with np.errstate(over="ignore"):  # what tells too much for a number is far above its charge
        left = -np.expm1(none - (order - 1) * unanswered)
    if not (left > 0).all():
        return math.inf
    needed = float((given - np.log(left)).max()) / (order - 1)
    return max(needed, unanswered) * (1 + _ROUNDED)


def require_charges(rule: VotingRule, charges: OutcomeCharges) -> None:
    """Requires that charges cover what both outcomes tell, whatever the votes are.

    Raises:
      ParameterError: they do not.
    """
    require_charged_by_outcome(rule)
    least = charge_of_an_answer(rule, charges.order, unanswered=charges.unanswered)
    if not charges.answered >= least * (1 - _ROUNDED):
        raise ParameterError.before_release(
            f"an answer must be charged {least:.6g} at least where an unanswered query is charged "
            f"{charges.unanswered:.6g}, and {charges.answered:.6g} is; raise either"
        )


@lru_cache(maxsize=256)
def _moments(rule: VotingRule, order: float) -> tuple[Floats, Floats]:
    """Log-moments of being answered and of not being so, over all pairs of worlds, (n,) each."""
    require_charged_by_outcome(rule)
    confidence = rule.confidence
    if confidence is None:
        raise ParameterError("a rule without a threshold answers always")
    limits = confidence.threshold, confidence.sigma
    if not rule.tells_winners:
        laws = Answers(rule.teachers, rule.answer_sigma, *limits)
        chances = laws.log_chances(np.arange(rule.teachers + 1, dtype=np.float64))
        low, high = chances[:-1], chances[1:]
        mine, other = np.concatenate([low, high]), np.concatenate([high, low])
        terms = order * mine + (1 - order) * other
        return np.asarray(np.logaddexp(terms[:, 0], terms[:, 1])), terms[:, 2]
    winners = Winners(rule.teachers, rule.classes, rule.sigma, *limits)
    if order <= FAR * rule.sigma:
        here, there, told = moves_by_leader(winners, order)
    else:  # by the noisy counts, wherever the leading count goes
        leading = np.arange(rule.teachers + 1, dtype=np.float64)
        here = np.concatenate([leading, leading[1:], leading[:-1]])
        there = np.concatenate([leading, leading[:-1], leading[1:]])
        told = np.full(here.size, order / rule.sigma**2)
    mine, other = winners.log_checks(here), winners.log_checks(there)
    terms = order * mine + (1 - order) * other
    return terms[:, 0] + (order - 1) * told, terms[:, 1]
