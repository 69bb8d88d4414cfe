"""What a rule would answer on given ballots, on average over its noise, and how right that is.

Nothing is drawn: chances are computed. All of it depends on the ballots, so that it is private, and
all of it is an expectation: what is released once may be better or worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.noisy_argmax_chances import plurality_law
from dpal.accounting.votes.noisy_threshold_check import log_checks
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError
from dpal.labels import UNKNOWN
from dpal.voting.ballots import Ballots, Choices, require_fitting
from dpal.voting.gate_label_first import Dependencies
from dpal.voting.gate_label_options import answered_chances

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ExpectedAnswers:
    """Of queries with one label and of queries with several. Private.

    Attributes:
      answers: how many labels are answered; of classes how many queries.
      accuracy: share of answers that are right; None without true labels, or without answers.
      balanced_accuracy: mean recall of the classes; of several labels of both answers of each,
        then averaged over the labels that have both. None where no class or label has any.
      average_precision: of several labels (mAP), with the released answers as scores; None
        likewise, and of classes.
    """

    answers: float
    accuracy: float | None = None
    balanced_accuracy: float | None = None
    average_precision: float | None = None


def expected_answers(
    rule: VotingRule, ballots: Ballots | Choices, truth: NDArray[np.integer] | None = None
) -> ExpectedAnswers:
    """What is answered, and how right that is; shares are ratios of expected counts.

    Args:
      rule: how queries are answered.
      ballots: of every teacher.
      truth: (queries, labels) zeros and ones, or (queries,) classes; UNKNOWN where not known.

    Raises:
      DataError: the ballots are not of the rule's teachers and labels.
      ParameterError: true labels are of another shape.
    """
    require_fitting(rule, ballots)
    shape = (ballots.queries,) if isinstance(ballots, Choices) else (ballots.queries, rule.labels)
    if truth is not None and truth.shape != shape:
        raise ParameterError(f"true labels of shape {truth.shape} are not those of {shape}")
    if not ballots.queries:
        return ExpectedAnswers(answers=0.0)
    if isinstance(ballots, Choices):
        return _of_classes(rule, ballots, truth)
    if rule.mechanism is Mechanism.POWERSET:
        yes, given = _set_chances(rule, ballots)
    else:
        counts = ballots.counts(rule)
        yes = _yes_chances(rule, counts)
        given = _given(rule, np.maximum(counts, rule.teachers - counts))
    return _of_labels(yes, given, truth)


def expected_with_gate(
    rule: VotingRule,
    ballots: Ballots,
    dependencies: Dependencies,
    answers: int,
    truth: NDArray[np.integer] | None = None,
) -> tuple[float, ExpectedAnswers]:
    """How many queries of a gated vote are answered, and how right that is.

    Args:
      rule: binary voting.
      ballots: of every teacher, in the order of asking.
      dependencies: gate and dependents.
      answers: of single labels that are paid for, whatever the votes are.
      truth: as of `expected_answers`.

    Raises:
      DataError: the ballots are not of the rule's teachers and labels.
      ParameterError: true labels are of another shape.
    """
    require_fitting(rule, ballots)
    if truth is not None and truth.shape != (ballots.queries, rule.labels):
        raise ParameterError(f"true labels of shape {truth.shape} are not those of the queries")
    if not ballots.queries:
        return 0.0, ExpectedAnswers(answers=0.0)
    yes = _yes_chances(rule, ballots.counts(rule))
    present = yes[:, dependencies.gate].copy()
    asked = answered_chances(rule, dependencies, present, answers)
    yes[:, dependencies.dependents] *= present[:, None]
    given = np.repeat(asked[:, None], rule.labels, axis=1)
    return float(asked.sum()), _of_labels(yes, given, truth)


def _yes_chances(rule: VotingRule, counts: Floats) -> Floats:
    """Chance of yes by counts of yes; same shape."""
    chances = scipy.special.ndtr((2 * counts - rule.teachers) / (math.sqrt(2) * rule.answer_sigma))
    return np.asarray(chances)


def _given(rule: VotingRule, largest: Floats) -> Floats:
    """Chance that an answer is given, by the largest count; same shape."""
    if rule.confidence is None:
        return np.ones(largest.shape)
    threshold, sigma = rule.confidence.threshold, rule.confidence.sigma
    return np.exp(log_checks(largest.ravel(), threshold, sigma)[:, 0]).reshape(largest.shape)


def _of_classes(
    rule: VotingRule, choices: Choices, truth: NDArray[np.integer] | None
) -> ExpectedAnswers:
    counts = choices.counts(rule)
    given = _given(rule, counts.max(axis=1))
    if truth is None:
        return ExpectedAnswers(answers=float(given.sum()))
    known = np.flatnonzero(truth != UNKNOWN)
    right = np.zeros(len(counts))
    for row in known:
        law = plurality_law(counts[row].astype(np.int64), classes=rule.classes, sigma=rule.sigma)
        right[row] = law[truth[row]]
    weights, hits = np.zeros(rule.classes), np.zeros(rule.classes)
    np.add.at(weights, truth[known], given[known])
    np.add.at(hits, truth[known], (given * right)[known])
    return ExpectedAnswers(
        answers=float(given.sum()),
        accuracy=_share(hits.sum(), weights.sum()),
        balanced_accuracy=_mean(hits, weights),
    )


def _set_chances(rule: VotingRule, ballots: Ballots) -> tuple[Floats, Floats]:
    """Chances of yes for every label, and that the set is given: both (queries, labels)."""
    cast = ballots.sets(rule)
    places = np.arange(rule.labels - 1, -1, -1, dtype=np.uint64)
    most = rule.labels if rule.limit is None else int(rule.limit)
    # How many of all sets have a label, the same number for each.
    having = sum(math.comb(rule.labels - 1, size - 1) for size in range(1, most + 1))
    yes = np.zeros((ballots.queries, rule.labels))
    for row, (codes, votes) in enumerate(zip(cast.codes, cast.votes, strict=True)):
        used = votes > 0
        law = plurality_law(votes[used], classes=rule.classes, sigma=rule.sigma)
        bits = ((codes[used, None] >> places) & np.uint64(1)).astype(np.float64)
        empty = rule.classes - int(used.sum())
        rest = law[-1] / empty * (having - bits.sum(axis=0)) if empty else 0.0
        yes[row] = law[:-1] @ bits + rest
    given = _given(rule, cast.votes.max(axis=1).astype(np.float64))
    return yes, np.repeat(given[:, None], rule.labels, axis=1)


def _of_labels(yes: Floats, given: Floats, truth: NDArray[np.integer] | None) -> ExpectedAnswers:
    answers = float(given.sum())
    if truth is None:
        return ExpectedAnswers(answers=answers)
    has, lacks = given * (truth == 1), given * (truth == 0)
    hits, false = (has * yes).sum(axis=0), (lacks * yes).sum(axis=0)
    positives, negatives = has.sum(axis=0), lacks.sum(axis=0)
    both = (positives > 0) & (negatives > 0)
    right = hits + negatives - false
    recall, precision = _ratio(hits, positives), _ratio(hits, hits + false)
    # Two steps: all that is answered yes, and then all others, which share one score.
    steps = recall * precision + (1 - recall) * _ratio(positives, positives + negatives)
    balanced = (recall + 1 - _ratio(false, negatives)) / 2
    return ExpectedAnswers(
        answers=answers,
        accuracy=_share(right.sum(), (positives + negatives).sum()),
        balanced_accuracy=float(balanced[both].mean()) if both.any() else None,
        average_precision=float(steps[both].mean()) if both.any() else None,
    )


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None


def _mean(part: Floats, whole: Floats) -> float | None:
    any_there = whole > 0
    return float((part[any_there] / whole[any_there]).mean()) if any_there.any() else None
