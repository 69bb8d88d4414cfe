"""Answers that leave only if what they cost is told to be within a limit.

For every pair of neighbouring votes of which one costs at most the limit, bound and answers
together cost its price plus the limit, in both directions, because `exact` bounds both. Where
both cost more, answers leave with chance `failure` at most, which is delta.

Source: docs/voting.md; the bound is `dpal.mechanisms.sanitized_cost`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.majorities import Answers, move_divergences
from dpal.accounting.smooth_sensitivity import smooth, table_local_sensitivity
from dpal.accounting.voting_rules import Bound, Mechanism, VotingRule
from dpal.errors import ParameterError
from dpal.mechanisms.sanitized_cost import SanitizingTerms, sanitize
from dpal.randomness import BitSource
from dpal.voting.ballots import Ballots, require_fitting
from dpal.voting.release import UNANSWERED, Released, answers

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bounded:
    """What was released.

    Attributes:
      released: the answers, all UNANSWERED where the bound was above the limit.
      told: the bound, in nats at its order; it may be shown.
      within: whether it was within the limit.
    """

    released: Released
    told: float
    within: bool


def release_within(rule: VotingRule, ballots: Ballots, bound: Bound, *, rng: BitSource) -> Bounded:
    """Tells a bound on what these answers cost, and answers if it is within the limit.

    Args:
      rule: binary voting.
      ballots: of every teacher on every query.
      bound: chosen without the votes.
      rng: source of the noise.

    Raises:
      ParameterError: the rule is another one. Nothing was drawn.
    """
    require_fitting(rule, ballots)
    require_bounded(rule)
    counts = ballots.counts(rule)
    cost, sensitivity = cost_of(rule, counts, bound)
    terms = SanitizingTerms(
        order=bound.order, beta=bound.beta, noise=bound.noise, margin=bound.margin
    )
    told = sanitize(cost, sensitivity, terms=terms, rng=rng).value
    within = told <= bound.limit
    if within:
        labels = answers(rule, counts, rng=rng)
    else:
        labels = np.full(counts.shape, UNANSWERED, dtype=np.int8)
    return Bounded(released=Released(labels), told=told, within=within)


def cost_of(rule: VotingRule, counts: Floats, bound: Bound) -> tuple[float, float]:
    """What answers on these counts cost at the bound's order, and its smooth sensitivity. Private.

    One ballot moves every count by one at most, so sensitivities add up over all answers.

    Args:
      rule: binary voting.
      counts: (queries, labels) votes for yes.
      bound: gives order and beta.
    """
    table = answer_costs(rule, bound.order)
    often = np.bincount(counts.astype(np.int64).ravel(), minlength=rule.teachers + 1)
    local = table_local_sensitivity(table)
    return float(often @ table), smooth(often @ local, beta=bound.beta)


def answer_costs(rule: VotingRule, order: float) -> Floats:
    """(teachers + 1,) cost of an answer by its votes for yes, both directions, one order."""
    checked = rule.confidence
    how = Answers(
        rule.teachers,
        rule.answer_sigma,
        None if checked is None else checked.threshold,
        None if checked is None else checked.sigma,
    )
    more, less = move_divergences(how, (order,))
    return np.asarray(np.maximum(more, less)[:, 0])


def require_bounded(rule: VotingRule) -> None:
    """Requires a rule whose cost is a sum over single counts.

    Raises:
      ParameterError: it is not.
    """
    if rule.mechanism is not Mechanism.BINARY:
        raise ParameterError(
            f"what {rule.mechanism} voting costs on given votes is not told yet; use binary, or "
            "leave the bound out (nothing was released)"
        )
