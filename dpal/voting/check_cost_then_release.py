"""Answers that leave with little noise only if what they cost is told to be within a limit.

On votes that cost at most the limit, bound and answers together cost its price plus the limit,
compared with whatever neighbours. On votes that cost more, answers leave with little noise with
chance `failure` at most, which is delta. Where the bound is above the limit, what is left pays for
answers with more noise, which cost no more than the limit whatever the votes are.

Source: docs/voting.md; the bound is `dpal.mechanisms.sanitized_cost`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.observed_cost import require_told, told_cost
from dpal.accounting.votes.smooth_sensitivity import smooth
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.mechanisms.sanitized_cost import SanitizingTerms, sanitize
from dpal.randomness import BitSource
from dpal.voting.ballots import Ballots, Choices, require_fitting, votes_for
from dpal.voting.draw_noisy_outcomes import UNANSWERED, Released, release


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedRelease:
    """What was released.

    Attributes:
      released: the answers; where the bound was above the limit, those with more noise, or all
        UNANSWERED if the bound has none.
      told: the bound, in nats at its order; it may be shown.
      within: whether it was within the limit.
    """

    released: Released
    told: float
    within: bool


def release_within(
    rule: VotingRule, ballots: Ballots | Choices, bound: CostBound, *, rng: BitSource
) -> BoundedRelease:
    """Tells a bound on what these answers cost, and answers with the noise that it allows.

    Args:
      rule: one whose cost can be told (`dpal.accounting.votes.observed_cost`).
      ballots: of every teacher on every query.
      bound: chosen without the votes.
      rng: source of the noise.

    Raises:
      ParameterError: the rule is another one. Nothing was drawn.
    """
    require_fitting(rule, ballots)
    require_told(rule)
    cost, sensitivity = cost_of(rule, ballots, bound)
    terms = SanitizingTerms(
        order=bound.order, beta=bound.beta, noise=bound.noise, margin=bound.margin
    )
    told = sanitize(cost, sensitivity, terms=terms, rng=rng).value
    within = told <= bound.limit
    sigma = rule.sigma if within else bound.fallback_sigma
    if sigma is not None:
        answers = release(replace(rule, sigma=sigma), ballots, rng=rng)
        return BoundedRelease(released=answers, told=told, within=within)
    if isinstance(ballots, Choices):
        none = Released(np.full(ballots.queries, UNANSWERED, dtype=np.int64))
    else:
        none = Released(np.full((ballots.queries, ballots.labels), UNANSWERED, dtype=np.int8))
    return BoundedRelease(released=none, told=told, within=False)


def cost_of(rule: VotingRule, ballots: Ballots | Choices, bound: CostBound) -> tuple[float, float]:
    """What answers cost at the bound's order, and its smooth sensitivity. Private."""
    cost, local = told_cost(rule, votes_for(rule, ballots), bound.order, by_lead=bound.by_lead)
    return cost, smooth(local, beta=bound.beta)
