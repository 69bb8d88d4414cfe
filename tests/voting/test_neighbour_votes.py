"""Nearby records vote so often at most: whoever is blanked moves nobody else, and pays alone."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import VOTING, Charge, Release
from dpal.errors import ParameterError
from dpal.privacy import Adjacency, PrivacyTarget
from dpal.randomness import secure
from dpal.voting.draw_noisy_outcomes import UNANSWERED
from dpal.voting.neighbour_votes import (
    NeighbourVotes,
    VotingRecords,
    least_noise,
    near_answers,
    radii_for,
)
from tests.variants import quick_and_slow

PLACES = np.array([[0.0], [1.0], [2.0], [3.0]])
LABELS = np.array([0, 1, 2, 1])
ASKED = np.array([[0.4], [1.5], [2.6]])
RULE = NeighbourVotes(classes=3, votes=2, sigma=1.0)


SEVERAL = np.array([[1, 0], [1, 1], [0, -1], [0, 1]])
TOGETHER = np.array([0, 0, 1, 0])  # the group 0 has three records
KINDS = {
    "classes": (RULE, LABELS, None, (0, 1, 2)),
    "labels": (replace(RULE, classes=2, several=True), SEVERAL, None, ([1, 1], [0, 0], [0, 1])),
    "groups": (RULE, LABELS, TOGETHER, (0, 1, 2)),
    "groups with labels": (
        replace(RULE, classes=2, several=True), SEVERAL, TOGETHER, ([1, 1], [0, 0], [0, 1]),
    ),
}  # fmt: skip


def counts(rule, labels, groups, asked, places=PLACES):
    records = VotingRecords(rule, places, labels, groups=groups)
    # One at a time: queries may be chosen in view of answers.
    return np.array([records.cast(one[None], np.array([1.2]))[0] for one in asked])


# Contents of three records of a group, and five queries of each, are many.
LONG = [*itertools.product(("groups", "groups with labels"), (3, 5)), ("labels", 5), ("classes", 5)]
CASES = list(itertools.product(KINDS, (1, 3, 5)))


@pytest.mark.parametrize(
    ("kind", "length"), quick_and_slow([one for one in CASES if one not in LONG], CASES)
)
def test_whoever_is_protected_moves_the_counts_by_its_own_votes_alone(kind, length):
    """Exhaustive over queries and over contents of a record or group.

    Seen red where votes are not counted, where the nearest vote, where each record of a group votes
    for itself or has votes of its own, and where votes on labels are charged as one class.
    """
    rule, own, groups, answers = KINDS[kind]
    whose = np.arange(len(own)) if groups is None else groups
    blanked = replaced = 0.0
    # Everything that one may become: where each of its records is, and what it says.
    contents = [*itertools.product((0.0, 1.5, 3.0), answers)]
    for sequence in itertools.product(range(len(ASKED)), repeat=length):
        asked = ASKED[list(sequence)]
        here = counts(rule, own, groups, asked)
        for one in np.unique(whose):
            mine = np.flatnonzero(whose == one)
            labels = own.copy()
            labels[mine] = -1
            apart = here - counts(rule, labels, groups, asked)
            assert (np.abs(apart).sum(axis=1) <= (rule.classes if rule.several else 1)).all()
            blanked = max(blanked, float((apart**2).sum()))
            if length == 5 and mine.size > 1:
                continue  # 243 sequences of 729 contents
            for content in itertools.product(contents, repeat=mine.size):
                labels, places = own.copy(), PLACES.copy()
                for record, (place, answer) in zip(mine, content, strict=True):
                    labels[record], places[record] = answer, place
                other = counts(rule, labels, groups, asked, places)
                replaced = max(replaced, float(((here - other) ** 2).sum()))
    scale = 2 if rule.several else 1  # noise of 2 sigma^2 on the difference of yes and no
    for found, adjacency in ((blanked, Adjacency.ZERO_OUT), (replaced, Adjacency.REPLACE_ONE)):
        event = rule.event(adjacency)
        charged = event.queries * event.squared_sensitivity * scale
        assert found <= charged
        if length == 5 and groups is None:
            assert found == charged  # and all of it can happen


def test_a_group_votes_once_on_a_query_by_the_mean_of_those_that_are_near():
    places, labels = np.zeros((4, 1)), np.array([0, 0, 1, 2])
    voters = VotingRecords(RULE, places, labels, groups=np.array([0, 0, 0, 1]))
    asked, radius = np.zeros((1, 1)), np.ones(1)
    once = voters.cast(asked, radius)[0]
    assert once == pytest.approx([2 / 3, 1 / 3, 1.0], abs=1e-5)
    assert once[:2].sum() <= 1
    assert (voters.cast(asked, radius) == once).all()
    assert not voters.cast(asked, radius).any()  # both have voted twice
    several = replace(RULE, classes=2, several=True)
    said = np.array([[1, 0], [1, 1], [1, -1], [-1, -1]])
    voters = VotingRecords(several, places, said, groups=np.array([0, 0, 0, 1]))
    # Of the second label one says no and one yes; whose labels nobody knows is silent.
    assert (voters.cast(asked, radius) == [[1.0, 0.0]]).all()


def test_labels_are_answered_where_yes_and_no_are_far_enough_apart():
    rule = NeighbourVotes(classes=3, votes=1, sigma=2.0, bar=30.0, several=True)
    answers = near_answers(rule, np.array([[200.0, -200.0, 1.0]]), rng=secure()).labels
    assert answers.tolist() == [[1, 0, UNANSWERED]]
    told = near_answers(replace(rule, bar=0.0), np.zeros((20_000, 1)), rng=secure()).labels
    assert set(np.unique(told)) == {0, 1}
    # The noise on a difference is that of two counts: 1.5 sd above 0 in 6.7 % (6 sd apart: 1e-9).
    high = replace(rule, bar=1.5 * math.sqrt(2) * rule.sigma)
    told = near_answers(high, np.zeros((40_000, 1)), rng=secure()).labels
    assert abs((told == 1).mean() - ndtr(-1.5)) < 6 * math.sqrt(0.0668 * 0.9332 / 40_000)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_differences_that_answers_decide_on_cost_no_more_than_one_gaussian(epsilon):
    """The second vote is cast only where the first answer was high: integrated over that answer."""
    move = 1 / 1.3  # one vote, in standard deviations
    y = np.linspace(-14, 14, 400_001)
    density = np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
    loss = move * y + move**2 / 2  # of the first answer, under the world that has the vote

    def gaussian(mu, at):
        return ndtr(mu / 2 - at / mu) - np.exp(at) * ndtr(-mu / 2 - at / mu)

    left = epsilon - loss
    again = gaussian(move, left)
    none = np.maximum(0.0, -np.expm1(left))
    for high in (y > 0, y < 0.5, np.abs(y) > 1):
        mean = float((density * np.where(high, again, none)).sum() * (y[1] - y[0]))
        assert mean <= gaussian(math.sqrt(2) * move, epsilon) * (1 + 1e-6)


def test_the_least_noise_keeps_the_promise_and_grows_with_the_root_of_votes():
    target = PrivacyTarget(epsilon=3.0, delta=1e-6)
    for votes in (1, 16):
        sigma = least_noise(votes, target)
        event = NeighbourVotes(classes=2, votes=votes, sigma=sigma).event(target.adjacency)
        charge = Charge(cohorts=("0",), event=event)
        release = Release(name="votes", kind=VOTING, phase=0, charges=(charge,))
        assert 2.99 < campaign_epsilon([release], target) <= 3.0
    assert least_noise(16, target) == pytest.approx(4 * least_noise(1, target), rel=0.01)
    assert least_noise(4, target, labels=8) == pytest.approx(least_noise(16, target), rel=1e-6)


def test_answers_come_from_neighbours_until_all_are_silent():
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.normal(0, 0.1, (300, 2)), rng.normal(5, 0.1, (300, 2))])
    labels = np.repeat([0, 1], 300)
    rule = NeighbourVotes(classes=3, votes=4, sigma=10.0, bar=100.0)
    records = VotingRecords(rule, places, labels)
    asked = np.array([[0.0, 0.0], [5.0, 5.0]] * 5)
    told = records.ask(asked, np.ones(10), rng=secure()).labels
    assert told[:8].tolist() == [0, 1] * 4
    assert (told[8:] == UNANSWERED).all()
    far = records.ask(np.array([[50.0, 50.0]]), np.ones(1), rng=secure()).labels
    assert far.tolist() == [UNANSWERED]


def test_radii_give_as_many_neighbours_as_were_asked_for_where_public_records_are_alike():
    rng = np.random.default_rng(1)
    private, public, asked = (rng.normal(0, 1, (size, 2)) for size in (4_000, 1_000, 50))
    radii = radii_for(asked, public, records=4_000, neighbours=80)
    apart = np.linalg.norm(private[None] - asked[:, None], axis=2)
    assert (apart <= radii[:, None]).sum(axis=1).mean() == pytest.approx(80, rel=0.15)


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(ParameterError):
        VotingRecords(RULE, PLACES, np.array([0, 1, 2]))
    with pytest.raises(ParameterError):
        VotingRecords(RULE, PLACES, np.array([0, 1, 2, 3]))
    for groups in (np.array([0, 1]), np.array([0, 1, -1, 2])):
        with pytest.raises(ParameterError):
            VotingRecords(RULE, PLACES, LABELS, groups=groups)
    with pytest.raises(ParameterError):
        VotingRecords(replace(RULE, several=True), PLACES, LABELS)
    records = VotingRecords(RULE, PLACES, LABELS)
    for queries, radii in ((np.zeros((2, 2)), np.ones(2)), (ASKED, np.ones(2))):
        with pytest.raises(ParameterError):
            records.cast(queries, radii)
