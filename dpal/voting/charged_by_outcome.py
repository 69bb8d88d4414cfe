"""Asks queries one after the other until what they were charged leaves none to pay for.

An unanswered query is charged less than an answered one, so how many are asked depends on what was
released, and on nothing else.

Source: docs/voting.md; charges in `dpal.accounting.votes.outcome_charges`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.outcome_charges import OutcomeCharges, require_charges
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.randomness import BitSource
from dpal.voting.ballots import Ballots, Choices, require_fitting
from dpal.voting.draw_noisy_outcomes import UNANSWERED, Released, release


@dataclass(frozen=True, kw_only=True, eq=False)
class ChargedRelease:
    """What was released.

    Attributes:
      released: the answers; queries from `asked` on are UNANSWERED.
      asked: how many queries were asked, answered or not; public.
      spent: what they were charged, at the order of the charges.
    """

    released: Released
    asked: int
    spent: float


def release_charged_by_outcome(
    rule: VotingRule, ballots: Ballots | Choices, charges: OutcomeCharges, *, rng: BitSource
) -> ChargedRelease:
    """Answers queries in order, until the next one might cost more than is left.

    Args:
      rule: with a threshold.
      ballots: of every teacher on every query, in the order of asking.
      charges: of both outcomes, and their limit; chosen without the votes.
      rng: source of the noise.

    Raises:
      ParameterError: the charges do not cover what the outcomes tell. Nothing was drawn.
    """
    require_fitting(rule, ballots)
    require_charges(rule, charges)
    # Noise of queries is independent: those that are not asked are drawn here and thrown away.
    labels = release(rule, ballots, rng=rng).labels
    # Labels are answered each for itself by binary votes; a set or a class is one answer.
    outcomes = (
        labels if rule.mechanism is Mechanism.BINARY else labels.reshape(len(labels), -1)[:, :1]
    )
    answered = np.cumsum((outcomes != UNANSWERED).sum(axis=1))
    each = outcomes.shape[1]
    before = np.concatenate([[0], answered[:-1]]) if len(answered) else answered
    asked = len(labels)
    for query in range(len(labels)):
        told = int(before[query])
        if charges.spent(told + each, each * query - told) > charges.limit:
            asked = query
            break
    given = int(answered[asked - 1]) if asked else 0
    labels[asked:] = UNANSWERED
    spent = charges.spent(given, each * asked - given)
    return ChargedRelease(released=Released(labels), asked=asked, spent=spent)
