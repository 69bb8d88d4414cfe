"""What is expected of a rule's answers, against draws and against figures without noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError
from dpal.labels import UNKNOWN
from dpal.training.label_metrics import label_figures
from dpal.voting.ballots import Ballots, Choices
from dpal.voting.draw_noisy_outcomes import UNANSWERED, release
from dpal.voting.expected_answers import expected_answers
from tests.conftest import RepeatableBits

QUERIES, TEACHERS, LABELS, DRAWS = 12, 15, 3, 400
CHECK = Confidence(threshold=10, sigma=3.0)
RULES = {
    "binary": VotingRule(mechanism=Mechanism.BINARY, teachers=TEACHERS, labels=LABELS, sigma=4.0),
    "one-noise": VotingRule(
        mechanism=Mechanism.BINARY, teachers=TEACHERS, labels=LABELS, sigma=4.0, noises=1
    ),
    "tau": VotingRule(
        mechanism=Mechanism.TAU_L2, teachers=TEACHERS, labels=LABELS, sigma=2.0, limit=1.2
    ),
    "sets": VotingRule(mechanism=Mechanism.POWERSET, teachers=TEACHERS, labels=LABELS, sigma=4.0),
    "small-sets": VotingRule(
        mechanism=Mechanism.POWERSET, teachers=TEACHERS, labels=LABELS, sigma=6.0, limit=1
    ),
    "classes": VotingRule(
        mechanism=Mechanism.GNMAX, teachers=TEACHERS, labels=LABELS, sigma=4.0, by_answers=True
    ),
}


def cast(rule: VotingRule, flips: float = 0.3) -> tuple[Ballots | Choices, NDArray[np.int64]]:
    """Ballots, and true labels of which some are not known."""
    rng = np.random.default_rng(5)
    if rule.mechanism is Mechanism.GNMAX:
        truth = rng.integers(LABELS, size=QUERIES)
        wrong = rng.random((QUERIES, TEACHERS)) < 0.4
        other = rng.integers(LABELS, size=(QUERIES, TEACHERS))
        ballots: Ballots | Choices = Choices(np.where(wrong, other, truth[:, None]), LABELS)
    else:
        truth = rng.integers(2, size=(QUERIES, LABELS))
        flipped = rng.random((QUERIES, TEACHERS, LABELS)) < flips
        ballots = Ballots.of((truth[:, None] ^ flipped).astype(np.uint8))
    truth[1] = UNKNOWN
    return ballots, truth


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_expectations_are_the_means_of_draws(name, checked):
    rule = replace(RULES[name], confidence=CHECK if checked else None)
    ballots, truth = cast(rule)
    bits = RepeatableBits(3)
    drawn = np.stack([release(rule, ballots, rng=bits).labels for _ in range(DRAWS)])
    given = drawn != UNANSWERED
    found = expected_answers(rule, ballots, truth)
    assert found.accuracy is not None and found.balanced_accuracy is not None
    # 4.5 standard errors at the most: one in 10^5 for each figure. Shares are ratios of means.
    answers = given.reshape(DRAWS, -1).sum(axis=1)
    off = 4.5 * answers.std() / np.sqrt(DRAWS) + 1e-9
    assert found.answers == pytest.approx(answers.mean(), abs=off)
    judged = given & (truth != UNKNOWN)
    right = (judged & (drawn == truth)).reshape(DRAWS, -1).sum(axis=1)
    share = right.sum() / judged.sum()
    off = 4.5 * np.sqrt(share * (1 - share) / (DRAWS * QUERIES / 3))
    assert found.accuracy == pytest.approx(share, abs=off)
    kinds = range(rule.labels) if rule.mechanism is Mechanism.GNMAX else range(2)
    each = [
        (judged & (drawn == truth) & (truth == kind)).sum((0, 1))
        / (judged & (truth == kind)).sum((0, 1))
        for kind in kinds
    ]
    assert found.balanced_accuracy == pytest.approx(np.mean(each), abs=0.02)


@pytest.mark.parametrize("name", ["binary", "tau", "sets"])
def test_without_noise_figures_are_those_of_the_answers(name):
    rule = replace(RULES[name], sigma=1e-3)
    ballots, truth = cast(rule, flips=0.1)  # no two sets are level
    truth[2:5] = 1 - truth[2:5]  # some answers are wrong
    said = release(rule, ballots, rng=RepeatableBits(1)).labels.astype(float)
    labels = np.where(truth == UNKNOWN, np.nan, truth)
    figures = label_figures(said, labels, np.full(LABELS, 0.5))
    found = expected_answers(rule, ballots, truth)
    assert found.answers == said.size
    assert found.balanced_accuracy == pytest.approx(figures.bac.mean(), abs=1e-9)
    assert found.average_precision == pytest.approx(figures.average_precision.mean(), abs=1e-9)
    assert found.accuracy == pytest.approx(figures.acc.mean(), abs=1e-9)


def test_without_true_labels_answers_are_counted_alone():
    ballots, truth = cast(RULES["binary"])
    found = expected_answers(RULES["binary"], ballots)
    assert found.answers == QUERIES * LABELS
    assert found.accuracy is found.balanced_accuracy is found.average_precision is None
    nothing = expected_answers(RULES["binary"], ballots.rows(slice(0)), truth[:0])
    assert (nothing.answers, nothing.accuracy) == (0.0, None)
    with pytest.raises(ParameterError):
        expected_answers(RULES["binary"], ballots, truth[:, :2])
