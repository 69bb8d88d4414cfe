"""Answers of teachers of whom some fall silent: each query by those who still vote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.votes.teacher_budgets import TeacherBudget, rule_of_stretch, stretches
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError
from dpal.randomness import BitSource
from dpal.voting.ballots import Ballots, Choices
from dpal.voting.draw_noisy_outcomes import Released, release


def release_by_budgets(
    rule: VotingRule,
    ballots: Ballots | Choices,
    budgets: Sequence[TeacherBudget],
    *,
    number: int,
    size: int,
    rng: BitSource,
) -> Released:
    """Answers the queries of a block. Whoever publishes it pays first.

    Args:
      rule: how, if all vote.
      ballots: of every teacher on every query, also of those who are silent on it, which nobody
        counts.
      budgets: of some teachers.
      number: of the block, from 1.
      size: queries that it is charged for; there may be fewer.
      rng: source of the noise.

    Raises:
      ParameterError: there are more. Nothing was drawn.
    """
    if ballots.queries > size:
        raise ParameterError.before_release(f"block {number} holds more queries than were charged")
    answers: list[NDArray[Any]] = [
        release(
            rule_of_stretch(rule, stretch),
            ballots.rows(slice(stretch.first, stretch.last)).without(stretch.silent),
            rng=rng,
        ).labels
        for stretch in stretches(budgets, number, size)
        if stretch.first < ballots.queries or not stretch.first
    ]
    return Released(np.concatenate(answers))
