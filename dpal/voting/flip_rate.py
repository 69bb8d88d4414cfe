"""How many answers noise turns: what a rule's noise costs in truth rather than in privacy."""

from __future__ import annotations

import math

import numpy as np
import scipy

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.noisy_argmax_chances import plurality_law
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.voting.ballots import Ballots, Choices

_LOOKED_AT = 200  # histograms whose law is integrated


def turned_by_noise(rule: VotingRule, ballots: Ballots | Choices) -> float | None:
    """Average chance that an answer is another one than without noise. Private.

    Args:
      rule: how queries are answered; its confidence check is left out.
      ballots: of every teacher.

    Returns:
      A share of all answers; of pluralities, the first queries speak for all. None where there
      are no queries.
    """
    if not ballots.queries:
        return None
    if isinstance(ballots, Ballots) and rule.mechanism is not Mechanism.POWERSET:
        lead = np.abs(2 * ballots.counts(rule) - rule.teachers)
        return float(scipy.special.ndtr(-lead / (math.sqrt(2) * rule.answer_sigma)).mean())
    some = ballots.rows(slice(0, _LOOKED_AT))
    if isinstance(some, Ballots):
        counts = some.sets(rule).votes
    else:
        counts = some.counts(rule).astype(np.int64)
    turned = []
    for row in counts:
        cast = row[row > 0]
        law = plurality_law(cast, classes=rule.classes, sigma=rule.sigma)
        turned.append(1 - float(law[int(cast.argmax())]))
    return float(np.mean(turned))
