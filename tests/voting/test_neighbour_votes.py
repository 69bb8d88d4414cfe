"""Nearby records vote so often at most: whoever is blanked moves nobody else, and pays alone."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import VOTING, Charge, Release
from dpal.errors import ParameterError
from dpal.privacy import Adjacency, PrivacyTarget
from dpal.randomness import secure
from dpal.voting.draw_answers import UNANSWERED
from dpal.voting.neighbour_votes import NeighbourVotes, VotingRecords, least_noise, radii_for

PLACES = np.array([[0.0], [1.0], [2.0], [3.0]])
LABELS = np.array([0, 1, 2, 1])
ASKED = np.array([[0.4], [1.5], [2.6]])
RULE = NeighbourVotes(classes=3, votes=2, sigma=1.0)


def counts(labels, asked, places=PLACES):
    records = VotingRecords(RULE, places, labels)
    # One at a time: queries may be chosen in view of answers.
    return np.array([records.cast(one[None], np.array([1.2]))[0] for one in asked])


@pytest.mark.parametrize("length", [1, 3, 6])
def test_a_record_moves_the_counts_by_its_own_votes_alone(length):
    """Exhaustive over queries. Seen red where votes are not counted, and where the nearest vote."""
    blanked = replaced = 0.0
    for sequence in itertools.product(range(len(ASKED)), repeat=length):
        here = counts(LABELS, ASKED[list(sequence)])
        for record in range(len(LABELS)):
            labels = LABELS.copy()
            labels[record] = -1
            without = counts(labels, ASKED[list(sequence)])
            assert set(np.unique(here - without)) <= {0.0, 1.0}
            assert ((here - without).sum(axis=1) <= 1).all()
            blanked = max(blanked, float(((here - without) ** 2).sum()))
            for label, place in itertools.product(range(3), (0.0, 1.5, 3.0)):
                labels, places = LABELS.copy(), PLACES.copy()
                labels[record], places[record] = label, place
                other = counts(labels, ASKED[list(sequence)], places)
                replaced = max(replaced, float(((here - other) ** 2).sum()))
    for found, adjacency in ((blanked, Adjacency.ZERO_OUT), (replaced, Adjacency.REPLACE_ONE)):
        event = RULE.event(adjacency)
        charged = event.queries * event.squared_sensitivity
        assert found <= charged
        if length == 6:
            assert found == charged  # and all of it can happen


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
    records = VotingRecords(RULE, PLACES, LABELS)
    for queries, radii in ((np.zeros((2, 2)), np.ones(2)), (ASKED, np.ones(2))):
        with pytest.raises(ParameterError):
            records.cast(queries, radii)
