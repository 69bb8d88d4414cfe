"""Charges by outcome: no worlds are further apart than charged, also where asking stops early."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dpal.accounting.votes.majority import Answers
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.outcome_charges import (
    OutcomeCharges,
    charge_of_an_answer,
    require_charges,
)
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.accounting.votes.worst_winner import Winners
from dpal.errors import ParameterError
from dpal.planning.vote_calibration import fitted
from dpal.planning.voting_plan import VotingSpec, certify_voting, most_queries
from dpal.privacy import PrivacyTarget
from dpal.randomness import secure
from dpal.voting.ballots import Ballots, Choices
from dpal.voting.charged_by_outcome import release_charged_by_outcome
from dpal.voting.draw_noisy_outcomes import UNANSWERED
from tests.accounting.votes.test_worst_winner import law, moved, partitions
from tests.conftest import nothing_released

ORDER = 3.0


def plural(teachers, classes, sigma, threshold, threshold_sigma):
    return VotingRule(
        mechanism=Mechanism.GNMAX,
        teachers=teachers,
        labels=classes,
        sigma=sigma,
        confidence=Confidence(threshold=threshold, sigma=threshold_sigma),
        by_answers=True,
    )


BINARY = VotingRule(
    mechanism=Mechanism.BINARY,
    teachers=9,
    labels=1,
    sigma=2.0,
    confidence=Confidence(threshold=8, sigma=0.7),
)
RULES = [
    plural(7, 3, 2.0, 5.0, 1.0),
    plural(9, 3, 4.0, 9.0, 0.8),
    plural(6, 4, 0.9, 6.0, 2.0),
    plural(8, 3, 1.5, 4.0, 0.5),
    plural(5, 3, 0.3, 4.0, 1.0),
    BINARY,
    replace(BINARY, teachers=8, sigma=0.5, confidence=Confidence(threshold=6, sigma=2.0)),
]


def moments(rule):
    """Moments of an answer and of none at `ORDER`, exactly, for every pair of neighbours."""
    checked = rule.confidence.threshold, rule.confidence.sigma
    if rule.mechanism is Mechanism.BINARY:
        laws = Answers(rule.teachers, rule.sigma, *checked).log_chances(
            np.arange(rule.teachers + 1.0)
        )
        pairs = [(laws[v], laws[v + 1]) for v in range(rule.teachers)]
    else:
        winners = Winners(rule.teachers, rule.labels, rule.sigma, *checked)
        pairs = [
            (law(counts, winners), law(after, winners))
            for counts in partitions(rule.teachers, rule.labels)
            for after in set(moved(counts))
        ]
    found = []
    for mine, other in [*pairs, *((q, p) for p, q in pairs)]:
        terms = np.exp(ORDER * mine + (1 - ORDER) * other)
        found.append((terms[:-1].sum(), terms[-1]))
    return np.array(found)


def charged(rule, share, limit=1.0):
    alike = max(math.log(sum(pair)) for pair in moments(rule)) / (ORDER - 1)
    none = share * alike
    # Where none of them tells that little, the next larger charge that covers it.
    while not math.isfinite(answer := charge_of_an_answer(rule, ORDER, unanswered=none)):
        none *= 1.3
    return OutcomeCharges(order=ORDER, answered=answer, unanswered=none, limit=limit)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.8])
def test_no_pair_of_worlds_tells_more_than_both_outcomes_are_charged(rule, share):
    """Exhaustive. Seen red with the charge of an answer a tenth lower."""
    charges = charged(rule, share)
    require_charges(rule, charges)
    answer, none = (math.exp(-(ORDER - 1) * one) for one in (charges.answered, charges.unanswered))
    totals = moments(rule) @ np.array([answer, none])
    assert totals.max() <= 1 + 1e-9
    # And little is charged for nothing: for yes or no the worst pair of worlds meets it.
    if rule.mechanism is Mechanism.BINARY:
        assert totals.max() >= 1 - 1e-6
    with pytest.raises(ParameterError):
        require_charges(rule, replace(charges, answered=0.99 * charges.answered))


@pytest.mark.parametrize(
    "rule",
    [
        plural(9, 3, 4.0, 9.0, 3.0),
        plural(7, 3, 2.0, 8.0, 3.0),
        replace(BINARY, confidence=Confidence(threshold=10, sigma=2.5)),
    ],
    ids=str,
)
def test_whoever_chooses_votes_in_view_of_outcomes_learns_no_more_than_the_limit(rule):
    """All sequences, and the worst pair of worlds after each. Seen red where asking stops late."""
    charges = charged(rule, 0.3, limit=3.5 * charged(rule, 0.3).answered)
    pairs, reached = moments(rule), 0

    @cache
    def worst(answered: int, unanswered: int) -> float:
        nonlocal reached
        reached = max(reached, answered + unanswered)
        if charges.spent(answered + 1, unanswered) > charges.limit or answered + unanswered > 30:
            return 1.0
        after = np.array([worst(answered + 1, unanswered), worst(answered, unanswered + 1)])
        return float((pairs @ after).max())

    assert math.log(worst(0, 0)) / (ORDER - 1) <= charges.limit
    assert reached > 4  # more than if all were answered


def test_asking_stops_when_the_next_query_might_cost_more_than_is_left():
    rule, none = plural(60, 3, 2.0, 40.0, 5.0), 0.02
    answer = charge_of_an_answer(rule, ORDER, unanswered=none)
    charges = OutcomeCharges(order=ORDER, answered=answer, unanswered=none, limit=3.5 * answer)
    agreed = np.zeros((40, 60), dtype=np.int64)
    divided = np.tile(np.arange(60) % 3, (40, 1))
    told = release_charged_by_outcome(rule, Choices(agreed, 3), charges, rng=secure())
    assert told.asked == 3
    assert (told.released.labels[:3] == 0).all()
    assert (told.released.labels[3:] == UNANSWERED).all()
    assert told.spent == pytest.approx(3 * charges.answered)
    silent = release_charged_by_outcome(rule, Choices(divided, 3), charges, rng=secure())
    left = (charges.limit - charges.answered) / none
    assert silent.asked == min(40, math.floor(left) + 1)
    assert (silent.released.labels == UNANSWERED).all()
    both = np.concatenate([divided[:5], agreed])
    mixed = release_charged_by_outcome(rule, Choices(both, 3), charges, rng=secure())
    assert (mixed.released.labels != UNANSWERED).sum() in (2, 3)
    assert mixed.spent <= charges.limit


def test_labels_of_a_query_are_outcomes_of_their_own():
    rule = replace(BINARY, teachers=60, labels=2, confidence=Confidence(threshold=45, sigma=4.0))
    none = 0.02
    answer = charge_of_an_answer(rule, ORDER, unanswered=none)
    charges = OutcomeCharges(order=ORDER, answered=answer, unanswered=none, limit=4.5 * answer)
    votes = np.ones((9, 60, 2), dtype=np.uint8)
    votes[:, :30, 1] = 0  # on the second label they are divided
    told = release_charged_by_outcome(rule, Ballots.of(votes), charges, rng=secure())
    # A query is asked while two answers fit: after three queries 1.5 are left, less what none cost.
    assert told.asked == 3
    assert (told.released.labels[:3, 0] == 1).all()
    assert (told.released.labels[:, 1] == UNANSWERED).all()


TARGET = PrivacyTarget(epsilon=8, delta=1e-6)
WIDE = plural(250, 10, 7.0, 200.0, 25.0)
SPEC = VotingSpec(name="votes", target=TARGET, rule=WIDE, blocks=(10_000,))


@pytest.mark.slow
def test_rarely_answered_queries_are_more_for_the_same_promise():
    plain = most_queries(SPEC)
    spec = fitted(SPEC, sigma=7.0, agreement=None, answered_share=0.02)
    certified = certify_voting(spec)
    assert 7.9 < certified.epsilon <= 8
    assert certified.epsilon_oracle == pytest.approx(certified.epsilon, abs=1e-6)
    charges = spec.charges
    assert charges is not None
    mean = 0.02 * charges.answered + 0.98 * charges.unanswered
    assert charges.limit / mean > 3.5 * plain
    with pytest.raises(ParameterError, check=nothing_released):
        replace(spec, charges=replace(charges, unanswered=0.9 * charges.unanswered))


@pytest.mark.parametrize(
    "changed",
    [
        {"rule": replace(WIDE, confidence=None)},
        {"rule": replace(WIDE, by_answers=False)},
        {"rule": replace(WIDE, mechanism=Mechanism.TOP_M, limit=2, by_answers=False)},
    ],
    ids=["always", "counts", "top_m"],
)
def test_where_outcomes_are_not_charged_apart_it_is_refused(changed):
    with pytest.raises(ParameterError, check=nothing_released):
        fitted(replace(SPEC, **changed), sigma=7.0, agreement=None, answered_share=0.1)


def test_both_ways_to_choose_are_not_asked_for_together():
    for wishes in (
        {"sigma": None, "agreement": None},
        {"sigma": 7.0, "agreement": 0.9},
        {"sigma": 7.0, "agreement": None, "answer_from": 0.9},
    ):
        with pytest.raises(ParameterError, check=nothing_released):
            fitted(SPEC, answered_share=0.1, **wishes)


def test_a_check_with_hardly_any_noise_has_no_charge_and_no_warning():
    confidence = Confidence(threshold=15.0, sigma=0.4)
    rule = VotingRule(
        mechanism=Mechanism.GNMAX, teachers=20, labels=4, sigma=5.0, confidence=confidence
    ).charged(by_answers=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert charge_of_an_answer(rule, 32.0, unanswered=0.1) == math.inf
