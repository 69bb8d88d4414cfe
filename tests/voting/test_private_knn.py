"""Nearest neighbours vote as teachers do, and sampling them makes each cheaper."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from dpal.accounting.events import PhaseExposure
from dpal.accounting.rdp import epsilon_spent
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import DataError, ParameterError
from dpal.voting import private_knn
from dpal.voting.private_knn import Neighbours, ask_neighbours
from tests.conftest import nothing_released

FALSE_ALARM = 1e-6
QUERIES = 8_000
RULE = VotingRule(mechanism=Mechanism.BINARY, teachers=9, labels=3, sigma=2.0)
CLIPPED = VotingRule(mechanism=Mechanism.TAU_L1, teachers=9, labels=3, sigma=2.0, limit=1.0)


def records(count: int = 200):
    rng = np.random.default_rng(2)
    return rng.normal(size=(count, 5)), (rng.random((count, 3)) < [0.2, 0.5, 0.8]).astype(int)


def nearest(private, query, count):
    """By the definition of a distance, one record after the other."""
    return sorted(range(len(private)), key=lambda one: math.dist(private[one], query))[:count]


def yes_of(neighbours, private, labels, query, rng):
    queries = np.broadcast_to(query, (QUERIES, query.size))
    return ask_neighbours(neighbours, private, labels, queries, rng=rng).labels.sum(axis=0)


def fits(yes, chances) -> bool:
    deviation = (yes - QUERIES * chances) ** 2 / (QUERIES * chances * (1 - chances))
    return bool(stats.chi2.sf(deviation.sum(), len(yes)) > FALSE_ALARM)


@pytest.mark.parametrize("rule", [RULE, CLIPPED, replace(RULE, noises=1)])
def test_all_records_sampled_is_a_vote_of_the_nearest(rule, bits):
    private, labels = records()
    query = np.full(5, 0.3)
    votes = labels[nearest(private, query, 9)].astype(float)
    if rule is CLIPPED:
        votes /= np.maximum(1, votes.sum(axis=1, keepdims=True))
    spread = 2.0 * (2 if rule.noises == 1 else math.sqrt(2))
    margin = 2 * votes.sum(axis=0) - 9
    yes = yes_of(Neighbours(rule=rule, sample_rate=1.0), private, labels, query, bits)
    assert fits(yes, ndtr(margin / spread))
    for wrong in (0.8, 1.2):  # noise wrong by a fifth is caught
        assert not fits(yes, ndtr(margin / (wrong * spread)))


def test_every_query_draws_a_sample_of_its_own(bits):
    # Nine records say yes and are near, all others say no: how many of the nine vote is
    # binomial, and the rest of the nine voices are further records.
    private = np.concatenate([np.zeros((9, 2)), np.ones((400, 2))])
    labels = np.repeat([[1], [0]], [9, 400], axis=0)
    rule = replace(RULE, labels=1)
    near = np.arange(10)
    for rate in (0.5, 0.2):
        yes = yes_of(Neighbours(rule=rule, sample_rate=rate), private, labels, np.zeros(2), bits)
        chance = stats.binom.pmf(near, 9, rate) @ ndtr((2 * near - 9) / (2 * math.sqrt(2)))
        assert fits(yes, np.array([chance]))
        # Power: a rate wrong by a tenth is caught.
        other = stats.binom.pmf(near, 9, 1.1 * rate) @ ndtr((2 * near - 9) / (2 * math.sqrt(2)))
        assert not fits(yes, np.array([other]))


def test_missing_neighbours_say_no(bits):
    # Four records that all say yes, and nine voices: 4 of 9, whichever are near.
    private, labels = records(4)
    everybody = Neighbours(rule=RULE, sample_rate=1.0)
    yes = yes_of(everybody, private, np.ones_like(labels), np.zeros(5), bits)
    assert fits(yes, np.full(3, ndtr(-1 / (2 * math.sqrt(2)))))
    nobody = Neighbours(rule=RULE, sample_rate=0.0)
    yes = yes_of(nobody, private, np.ones_like(labels), np.zeros(5), bits)
    assert fits(yes, np.full(3, ndtr(-9 / (2 * math.sqrt(2)))))


def test_a_record_left_out_lets_one_other_in(monkeypatch):
    # Equal records: the last bits of their distances must not depend on who else is sampled,
    # or leaving one out would exchange others too. Seen red with distances of the sampled alone.
    count = 61
    private = np.tile(np.random.default_rng(6).normal(size=33), (count, 1))
    voices = []

    def listen(rule, counts, *, rng):
        voices.append(set(np.flatnonzero(counts[0])))
        return np.zeros(counts.shape, dtype=np.int8)

    monkeypatch.setattr(private_knn, "noisy_answers", listen)
    asked = Neighbours(rule=replace(RULE, labels=count), sample_rate=0.5)
    rng = np.random.default_rng(7)
    for _ in range(100):
        query, sampled = rng.normal(size=(1, 33)), np.flatnonzero(rng.random(count) < 0.5)
        for some in (sampled, np.delete(sampled, 2)):
            bits = Sampled(some, count)
            ask_neighbours(asked, private, np.eye(count, dtype=int), query, rng=bits)
        before, after = voices[-2:]
        assert len(before) == len(after) == 9
        assert len(before - after) <= 1


class Sampled:
    """Words by which the named records are sampled, and no others."""

    def __init__(self, named, count) -> None:
        self.drawn = np.full(count, 2**64 - 1, dtype=np.uint64)
        self.drawn[named] = 0

    def words(self, count):
        assert count == self.drawn.size
        return self.drawn


def test_a_query_is_a_step_of_a_sampled_gaussian():
    # One ballot replaced moves both noisy counts of each label: L2 sensitivity sqrt(2 * 3).
    asked = Neighbours(rule=RULE, sample_rate=0.1)
    assert asked.event(40) == PhaseExposure(
        steps=40, sample_rate=0.1, noise_multiplier=2.0 / math.sqrt(6)
    )
    # One noise of sqrt(2) times the size is the same mechanism.
    single = replace(RULE, noises=1, sigma=2.0 * math.sqrt(2))
    other = Neighbours(rule=single, sample_rate=0.1).event(40).noise_multiplier
    assert other > asked.event(40).noise_multiplier
    assert Neighbours(rule=CLIPPED, sample_rate=0.1).event(1).noise_multiplier == pytest.approx(
        2.0 / math.sqrt(2 * 2)
    )


def test_sampling_amplifies():
    quiet = replace(RULE, sigma=20.0)
    spent = [
        epsilon_spent([Neighbours(rule=quiet, sample_rate=rate).event(50)], delta=1e-5)
        for rate in (0.01, 0.1, 0.5, 1.0)
    ]
    assert spent == sorted(spent)
    assert spent[1] < 0.3 * spent[3]
    assert epsilon_spent([Neighbours(rule=quiet, sample_rate=0.0).event(50)], delta=1e-5) == 0


def test_what_cannot_vote_is_refused(bits):
    private, labels = records(20)
    asked = Neighbours(rule=RULE, sample_rate=1.0)
    for wrong in (
        lambda: ask_neighbours(asked, private, labels[:-1], private, rng=bits),
        lambda: ask_neighbours(asked, private, labels[:, :2], private, rng=bits),
        lambda: ask_neighbours(asked, private, labels, private[:, :4], rng=bits),
        lambda: Neighbours(rule=RULE, sample_rate=1.5),
        lambda: Neighbours(
            rule=replace(RULE, confidence=Confidence(threshold=5, sigma=1)), sample_rate=0.5
        ),
        lambda: Neighbours(
            rule=VotingRule(mechanism=Mechanism.POWERSET, teachers=9, labels=3, sigma=2.0),
            sample_rate=0.5,
        ),
    ):
        with pytest.raises(ParameterError):
            wrong()
    with pytest.raises(DataError, check=nothing_released):
        ask_neighbours(asked, private, 2 * labels + 1, private, rng=bits)
