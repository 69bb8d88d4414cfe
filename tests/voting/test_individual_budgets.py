"""Whose budget is spent is not counted, and everybody else is."""

from __future__ import annotations

import numpy as np
import pytest

from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.teacher_budgets import TeacherBudget
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError
from dpal.randomness import secure
from dpal.voting.ballots import Ballots, Choices
from dpal.voting.draw_noisy_outcomes import UNANSWERED
from dpal.voting.individual_budgets import release_by_budgets

TEACHERS, SIZE = 9, 6
BUDGETS = (
    TeacherBudget(epsilon=0.5, teachers=(0, 1, 2), queries=(2,)),
    TeacherBudget(epsilon=0.9, teachers=(7,), queries=(4,)),
)
LABELS = VotingRule(mechanism=Mechanism.BINARY, teachers=TEACHERS, labels=2, sigma=0.05)
CLASSES = VotingRule(mechanism=Mechanism.GNMAX, teachers=TEACHERS, labels=3, sigma=0.05)


def answers(rule, ballots, *, size=SIZE):
    released = release_by_budgets(rule, ballots, BUDGETS, number=1, size=size, rng=secure())
    return released.labels


def test_a_ballot_counts_until_its_budget_is_spent_and_no_longer():
    """Hardly any noise. Seen red where silent teachers are counted."""
    votes = np.zeros((SIZE, TEACHERS, 2), np.uint8)
    votes[:, [0, 1, 2, 7, 8]] = 1  # 5 of 9 say yes; then 2 of 6, then 1 of 5
    assert answers(LABELS, Ballots.of(votes)).tolist() == [[1, 1]] * 2 + [[0, 0]] * 4
    votes[:, [3, 4, 7, 8]] = 1  # 7 of 9; then 4 of 6, then 3 of 5
    assert answers(LABELS, Ballots.of(votes)).tolist() == [[1, 1]] * 6
    chosen = np.full((SIZE, TEACHERS), 2)
    chosen[:, [0, 1, 2, 7]] = 0
    chosen[:, [3, 4]] = 1
    assert answers(CLASSES, Choices(chosen, 3)).tolist() == [0, 0, 2, 2, 2, 2]


def test_what_silent_teachers_say_moves_no_answer():
    """On the last queries, whatever they cast: 200 blocks of ties but for those who still vote."""
    loud = VotingRule(mechanism=Mechanism.BINARY, teachers=TEACHERS, labels=200, sigma=3.0)
    votes = np.zeros((SIZE, TEACHERS, 200), np.uint8)
    votes[:, [3, 4]] = 1
    other = votes.copy()
    other[2:, :3] = 1
    other[4:, 7] = 1
    shares = [
        np.mean([answers(loud, Ballots.of(cast))[2:].mean(axis=1) for _ in range(40)], axis=0)
        for cast in (votes, other)
    ]
    # 8,000 answers of each query: six standard deviations of the difference of two means.
    assert np.abs(shares[0] - shares[1]).max() < 6 * np.sqrt(2 * 0.25 / 8_000)


def test_a_threshold_asks_for_the_same_share_of_those_who_vote():
    checked = VotingRule(
        mechanism=Mechanism.BINARY, teachers=TEACHERS, labels=1, sigma=0.05,
        confidence=Confidence(threshold=8.1, sigma=0.01),
    )  # fmt: skip
    votes = np.ones((SIZE, TEACHERS, 1), np.uint8)
    assert (answers(checked, Ballots.of(votes)) == 1).all()
    votes[:, 8] = 0  # 8 of 9, 5 of 6 and 4 of 5 are below nine tenths
    assert (answers(checked, Ballots.of(votes)) == UNANSWERED).all()


def test_blocks_may_have_fewer_queries_and_never_more():
    votes = np.ones((3, TEACHERS, 2), np.uint8)
    assert answers(LABELS, Ballots.of(votes)).shape == (3, 2)
    assert answers(LABELS, Ballots.of(votes).rows(slice(0, 0))).shape == (0, 2)
    with pytest.raises(ParameterError):
        answers(LABELS, Ballots.of(votes), size=2)
